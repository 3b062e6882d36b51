-- The queue, if it knows a message. By its id alone: a change of priority moves a message, its id stays.  $1 id
SELECT {queue_text} WHERE EXISTS (SELECT FROM {q} WHERE id = $1) OR EXISTS (SELECT FROM {w} WHERE id = $1)
    OR EXISTS (SELECT FROM {d} WHERE id = $1) OR EXISTS (SELECT FROM {a} WHERE id = $1)
