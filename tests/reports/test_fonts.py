"""Text that our fonts can draw, from text of any kind."""

from vicinal.reports.fonts import printable


def test_what_no_font_has_is_a_box_and_what_would_turn_the_line_is_gone():
    assert printable("a\ue000\u202eb\n") == "a□b "
