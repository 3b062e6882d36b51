from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TaskMetadata(_message.Message):
    __slots__ = ("priority", "timestamp", "retries")
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    RETRIES_FIELD_NUMBER: _ClassVar[int]
    priority: int
    timestamp: int
    retries: int
    def __init__(self, priority: _Optional[int] = ..., timestamp: _Optional[int] = ..., retries: _Optional[int] = ...) -> None: ...

class Task(_message.Message):
    __slots__ = ("id", "data", "metadata", "content_type", "headers", "max_attempts", "due", "blob", "format", "call", "expires")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    DUE_FIELD_NUMBER: _ClassVar[int]
    BLOB_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_FIELD_NUMBER: _ClassVar[int]
    id: str
    data: bytes
    metadata: TaskMetadata
    content_type: str
    headers: _containers.ScalarMap[str, str]
    max_attempts: int
    due: float
    blob: str
    format: int
    call: str
    expires: float
    def __init__(self, id: _Optional[str] = ..., data: _Optional[bytes] = ..., metadata: _Optional[_Union[TaskMetadata, _Mapping]] = ..., content_type: _Optional[str] = ..., headers: _Optional[_Mapping[str, str]] = ..., max_attempts: _Optional[int] = ..., due: _Optional[float] = ..., blob: _Optional[str] = ..., format: _Optional[int] = ..., call: _Optional[str] = ..., expires: _Optional[float] = ...) -> None: ...

class Attempt(_message.Message):
    __slots__ = ("start", "end", "worker", "error")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    start: float
    end: float
    worker: str
    error: str
    def __init__(self, start: _Optional[float] = ..., end: _Optional[float] = ..., worker: _Optional[str] = ..., error: _Optional[str] = ...) -> None: ...

class Record(_message.Message):
    __slots__ = ("task", "place", "attempts", "tries", "token", "lease_end", "visible_at", "retrying", "recovered", "status", "finished_at", "result", "error", "worker", "last_token", "last_action", "ack", "gone", "moving_to", "result_blob", "format", "claimed_at", "tried_at", "history")
    class Place(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        LIVE: _ClassVar[Record.Place]
        DEAD: _ClassVar[Record.Place]
        ARCHIVE: _ClassVar[Record.Place]
    LIVE: Record.Place
    DEAD: Record.Place
    ARCHIVE: Record.Place
    TASK_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    TRIES_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    LEASE_END_FIELD_NUMBER: _ClassVar[int]
    VISIBLE_AT_FIELD_NUMBER: _ClassVar[int]
    RETRYING_FIELD_NUMBER: _ClassVar[int]
    RECOVERED_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_AT_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    LAST_TOKEN_FIELD_NUMBER: _ClassVar[int]
    LAST_ACTION_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    MOVING_TO_FIELD_NUMBER: _ClassVar[int]
    RESULT_BLOB_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    CLAIMED_AT_FIELD_NUMBER: _ClassVar[int]
    TRIED_AT_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    task: Task
    place: Record.Place
    attempts: int
    tries: int
    token: str
    lease_end: float
    visible_at: float
    retrying: bool
    recovered: bool
    status: str
    finished_at: float
    result: bytes
    error: str
    worker: str
    last_token: str
    last_action: str
    ack: str
    gone: bool
    moving_to: str
    result_blob: str
    format: int
    claimed_at: float
    tried_at: float
    history: _containers.RepeatedCompositeFieldContainer[Attempt]
    def __init__(self, task: _Optional[_Union[Task, _Mapping]] = ..., place: _Optional[_Union[Record.Place, str]] = ..., attempts: _Optional[int] = ..., tries: _Optional[int] = ..., token: _Optional[str] = ..., lease_end: _Optional[float] = ..., visible_at: _Optional[float] = ..., retrying: bool = ..., recovered: bool = ..., status: _Optional[str] = ..., finished_at: _Optional[float] = ..., result: _Optional[bytes] = ..., error: _Optional[str] = ..., worker: _Optional[str] = ..., last_token: _Optional[str] = ..., last_action: _Optional[str] = ..., ack: _Optional[str] = ..., gone: bool = ..., moving_to: _Optional[str] = ..., result_blob: _Optional[str] = ..., format: _Optional[int] = ..., claimed_at: _Optional[float] = ..., tried_at: _Optional[float] = ..., history: _Optional[_Iterable[_Union[Attempt, _Mapping]]] = ...) -> None: ...
