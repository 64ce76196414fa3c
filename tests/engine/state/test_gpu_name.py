"""People write the name of a GPU in several ways."""

import pytest

from steno.engine.state.gpu_name import model_of


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("MI300X", "MI300X"),
        (" mi300x ", "MI300X"),
        ("amd:MI300X", "MI300X"),
        ("AMD : mi300x:8", "MI300X:8"),
        ("AMD Instinct MI300X VF", "MI300X"),
        ("AMDInstinctMI300XVF", "MI300X"),
        ("AMD Instinct MI355X", "MI355X"),
        ("Instinct MI250X OAM", "MI250X"),
        ("amd:AMD Instinct MI210", "MI210"),
        ("MI300X:192GB", "MI300X:192GB"),
        ("nvidia", "NVIDIA"),
        ("NVIDIA RTX A6000", "NVIDIA RTX A6000"),
        ("a100_3g.20gb", "A100_3G.20GB"),
        ("Instinct", "INSTINCT"),
        ("", ""),
    ],
)
def test_a_gpu_has_one_name_however_it_is_written(name: str, model: str) -> None:
    """The maker and the words around the model are left out; a number and a memory stay."""
    assert model_of(name) == model
