"""What `_torch` exports. Kept by hand, compared with the module by a test."""

build_info: dict[str, str]

# trace/torch
def start_collectives(sink: object, /) -> None: ...
def stop_collectives() -> None: ...
