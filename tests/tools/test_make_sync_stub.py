"""sync.pyi is what its generator writes."""

import importlib.util

from tests import ROOT


def test_the_stub_is_up_to_date():
    spec = importlib.util.spec_from_file_location("make_sync_stub", ROOT / "tools" / "make_sync_stub.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.STUB == ROOT / "src" / "holdfast" / "sync.pyi"
    assert module.STUB.read_text() == module.formatted(module.stub()), "run: python tools/make_sync_stub.py"
