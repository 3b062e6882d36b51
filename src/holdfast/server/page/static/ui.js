// Holdfast, the page: theme, keys, copying, relative times, new numbers. Everything works without it. Loaded in <head>, so that
// a chosen theme is there before the first paint.
(() => {
  "use strict";
  const root = document.documentElement;
  const kept = localStorage.getItem("holdfast-theme");
  if (kept) root.dataset.theme = kept;
  const $ = (selector) => document.querySelector(selector);
  const all = (selector) => [...document.querySelectorAll(selector)];
  const say = (text) => { const place = $("#announce"); if (place) place.textContent = text; };

  // the server's clock, not the browser's: the page says when it was made
  let skew = root.dataset.now ? Date.parse(root.dataset.now) - Date.now() : 0;
  const relative = (when) => {
    const seconds = Math.round((Date.now() + skew - when) / 1000), far = Math.abs(seconds);
    const text = far < 60 ? `${far} s` : far < 3600 ? `${Math.floor(far / 60)} min`
      : far < 172800 ? `${Math.floor(far / 3600)} h ${Math.floor(far / 60) % 60} min` : `${Math.floor(far / 86400)} d`;
    return seconds < 0 ? `in ${text}` : `${text} ago`;
  };
  const tick = () => all("time[data-rel]").forEach((each) => { each.textContent = relative(Date.parse(each.dateTime)); });

  const themes = ["system", "light", "dark"];
  const theme = () => {
    const next = themes[(themes.indexOf(root.dataset.theme || "system") + 1) % 3];
    if (next === "system") { delete root.dataset.theme; localStorage.removeItem("holdfast-theme"); }
    else { root.dataset.theme = next; localStorage.setItem("holdfast-theme", next); }
    say(`Theme: ${next}`);
  };

  const copy = async (button) => {
    await navigator.clipboard.writeText(button.dataset.copy || $(button.dataset.copyFrom).innerText.trim());
    say("Copied");
    const use = button.querySelector("use"), icon = use && use.getAttribute("href");
    if (use) { use.setAttribute("href", icon.replace(/#.*/, "#i-done")); setTimeout(() => use.setAttribute("href", icon), 1500); }
  };

  const row = (step) => {
    const links = all("main tbody tr, main [data-row]").map((each) => each.querySelector("a")).filter((each) => each && each.offsetParent);
    const at = links.findIndex((each) => each.closest("tr, [data-row]").contains(document.activeElement));
    const to = links[Math.max(0, Math.min(links.length - 1, at + step))];
    if (to) to.focus();
  };

  let before = "";
  const keys = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
    const link = before === "g" && $(`.nav a[data-key="${event.key}"]`);
    const find = $("#find"), help = $("#help");
    before = event.key;
    if (link) link.click();
    else if (event.key === "/" && find && find.offsetParent) { event.preventDefault(); find.focus(); }
    else if (event.key === "/") location.href = $('.nav a[data-key="m"]').href;
    else if (event.key === "?" && help) help.togglePopover();
    else if (event.key === "j") row(1);
    else if (event.key === "k") row(-1);
  };

  // New numbers: the same page is asked for again, and what differs is replaced in place. Parts with a form that
  // somebody fills in have no data-part. What is open, focused or scrolled stays so.
  const EVERY_MS = 5000;
  const parts = (where) => [...where.querySelectorAll("[data-part]")];
  const names = (where) => parts(where).map((each) => each.dataset.part).join();
  const shown = (word, tone) => {
    const place = $("#live");
    if (!place) return;
    place.hidden = false;
    if (place.textContent !== word) place.textContent = word;
    place.className = `live ${tone}`;
  };
  const replace = (old, fresh) => {
    if (old.isEqualNode(fresh)) return;
    const focus = old.contains(document.activeElement) && document.activeElement;
    const same = focus && (focus.getAttribute("href") || focus.id);
    const open = [...old.querySelectorAll("details")].map((each) => each.open);
    const left = [...old.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
    old.replaceWith(fresh);
    [...fresh.querySelectorAll("details")].forEach((each, at) => { each.open = open[at] || each.open; });
    [...fresh.querySelectorAll(".scroll")].forEach((each, at) => { each.scrollLeft = left[at] || 0; });
    const to = same && [...fresh.querySelectorAll("a, button")].find((each) => (each.getAttribute("href") || each.id) === same);
    if (to) to.focus({ preventScroll: true });
  };
  const renew = async () => {
    const answer = await fetch(location.href, { headers: { accept: "text/html" }, cache: "no-store" });
    if (answer.redirected) { location.reload(); return; }
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (!answer.ok && answer.status !== 503) throw new Error(answer.status);
    skew = Date.parse(fresh.documentElement.dataset.now) - Date.now();
    const heading = $("h1") && $("h1").textContent;
    if (names(document) === names(fresh)) {
      const next = parts(fresh);
      parts(document).forEach((each, at) => replace(each, next[at]));
    } else {
      replace($(".nav"), fresh.querySelector(".nav"));
      $("main").replaceWith(fresh.querySelector("main"));
    }
    document.title = fresh.title;
    if ($("h1") && $("h1").textContent !== heading) say($("h1").textContent);
    tick();
    answer.ok ? shown("live", "ok") : shown("store away", "bad");
  };
  const live = async () => {
    try {
      if (!document.hidden && !$(".preview, main :is(input, textarea):focus")) await renew();
    } catch { shown("reconnecting", "warn"); }
    setTimeout(live, EVERY_MS);
  };
  // what was done is said once: not again when the page is loaded again
  const said = () => {
    const here = new URL(location.href);
    if (!here.searchParams.has("did")) return;
    here.searchParams.delete("did");
    here.searchParams.delete("count");
    history.replaceState(null, "", here);
  };

  document.addEventListener("DOMContentLoaded", () => {
    document.addEventListener("keydown", keys);
    document.addEventListener("click", (event) => {
      const button = event.target.closest("[data-copy], [data-copy-from], [data-theme-switch]");
      if (button) "themeSwitch" in button.dataset ? theme() : copy(button);
    });
    for (const strip of all(".nav, .tabs")) {
      const here = strip.querySelector("[aria-current]");
      if (here) strip.scrollLeft += here.getBoundingClientRect().left - strip.getBoundingClientRect().left - (strip.clientWidth - here.offsetWidth) / 2;
    }
    said();
    tick();
    setInterval(tick, 10000);
    if ("live" in document.body.dataset) { shown("live", "ok"); setTimeout(live, EVERY_MS); }
  });
})();
