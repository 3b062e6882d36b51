"""Tasks, as Django has them. Django 6: `from django.tasks import task`."""

import django

if django.VERSION >= (6,):
    from django.tasks import task
else:
    from django_tasks import task


@task()
def charge(amount: int) -> str:
    if amount < 0:
        raise ValueError("a charge is above zero")
    return f"charged {amount}"


@task(queue_name="mail", priority=10)
async def send(address: str) -> str:
    return f"sent to {address}"
