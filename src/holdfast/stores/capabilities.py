"""What a store can do, and what suits it: one value per store, read by the layers above."""

from __future__ import annotations

import msgspec


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """The defaults are those of a store that has nothing special to say."""

    prefetch: int = 0  # messages that a worker claims in advance at least: more where a claim is expensive
    batch_size: int = 100  # messages of one call by a worker: more where every call has a commit of its own
    transactional: bool = False  # `append` takes `connection=` and joins its transaction
    shares_schema: bool = False  # `install` takes `shared_schema=`
    grants_roles: bool = False  # `grant` gives a role what workers need
    changes_messages: bool = True  # `change` is there
    keeps_values: bool = False  # `values` is there
    remembers_calls: bool = False  # `append_call`: a call that is repeated within an hour adds nothing
