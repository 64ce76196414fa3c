"""For tests of a provider of another package; needs pytest. docs/providers.md shows the use.

class TestMine(ProviderContract):
    @pytest.fixture
    def site(self, tmp_path):
        site = MySite(tmp_path)  # a subclass of ProviderSite
        yield site
        site.close()
"""

import pytest

pytest.register_assert_rewrite("steno.testing.provider_contract")

from steno.testing.provider_contract import ProviderContract  # noqa: E402 - after its asserts are registered
from steno.testing.site import ProviderSite  # noqa: E402

__all__ = ["ProviderContract", "ProviderSite"]
