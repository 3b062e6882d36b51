"""The same without async: the names are the same, the calls block. Run: python examples/first_queue_sync.py [URL]"""

import sys

import holdfast


def main(url: str) -> None:
    with holdfast.sync.connect(url) as broker:
        emails = broker.queue("emails")

        emails.enqueue({"to": "ada@example.com", "subject": "Hello"})
        emails.enqueue({"to": "grace@example.com", "subject": "Urgent"}, priority=9)

        while delivery := emails.dequeue():
            print(f"sending {delivery.value['subject']!r} to {delivery.value['to']}")
            delivery.complete({"sent": True})

        stats = emails.stats()
        print(f"{stats.completed} completed, {stats.pending} waiting")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "memory://")
