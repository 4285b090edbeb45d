"""Serial numbers are found in every form in which customers write them, and nowhere else."""

from __future__ import annotations

import pytest

from scenarios.warranty.serials import find_serials

FOUND = {
    "plain": ("SN12345", "SN12345"),
    "lower case": ("it says sn12345 below the barcode", "SN12345"),
    "dash": ("SN-12345", "SN12345"),
    "space": ("SN 12345 is broken", "SN12345"),
    "number sign": ("SN#12345", "SN12345"),
    "colon and two spaces": ("SN:  90817. LOOK IT UP", "SN90817"),
    "grouped digits": ("sn 123 45.", "SN12345"),
    "three groups": ("SN 12 345 678", "SN12345678"),
    "suffix": ("S/N: 12345-AB", "SN12345-AB"),
    "suffix with a digit": ("SN44219-X1", "SN44219-X1"),
    "numeric suffix": ("SN12345-01", "SN12345-01"),
    "suffix glued on": ("SN12345AB", "SN12345-AB"),
    "spaced slash": ("s / n 12345", "SN12345"),
    "label twice": ("S/N: SN98765", "SN98765"),
    "English abbreviation": ("serial no. 12345", "SN12345"),
    "English sentence": ("The serial number is SN-12345.", "SN12345"),
    "English, in brackets": ("my oven (serial number: 12345)", "SN12345"),
    "on the next line": ("Serial number:\n12345-AB", "SN12345-AB"),
    "German": ("Die Seriennummer lautet SN-77120-DE,", "SN77120-DE"),
    "German abbreviation": ("Serien-Nr. 303112", "SN303112"),
    "Polish": ("Numer seryjny: sn 48213.", "SN48213"),
    "Polish abbreviation": ("nr seryjny to 20311-PL", "SN20311-PL"),
    "Polish locative": ("urządzenia o numerze seryjnym SN40404", "SN40404"),
    "French": ("N° de série : SN 55 102.", "SN55102"),
    "French in full": ("le numéro de série est 12345", "SN12345"),
    "Spanish": ("Nº de serie 33871-AB, como pone", "SN33871-AB"),
    "Italian": ("Il numero di serie è 99001, l'ho", "SN99001"),
    "Portuguese": ("O número de série é 52077-PT", "SN52077-PT"),
    "Czech": ("sériové číslo 12345", "SN12345"),
    "Japanese, full-width": ("シリアル番号：ＳＮ９０２２１１", "SN902211"),
    "Japanese, maker's number": ("製造番号は12345-ABです", "SN12345-AB"),
    "quoted": ('serial number "12345"', "SN12345"),
    "another maker's": ("S/N AX99-812", "AX99-812"),
    "before a postal code": ("serial no. 12345, 60311 Frankfurt", "SN12345"),
    "before a database command": ("SN12121'; DROP TABLE warranties; --", "SN12121"),
    "beside a month": ("S/N: 81234-DE und daneben 2024-11", "SN81234-DE"),
}

SEVERAL = {
    "two labels": ("My fridge (sn-12345) and my oven, S/N: 67890-AB", ("SN12345", "SN67890-AB")),
    "in reading order": ("S/N 67890, and then SN12345", ("SN67890", "SN12345")),
    "one number, three spellings": ("Serial #: SN12345, SN-12345, sn 12345", ("SN12345",)),
    "plural label": ("Serial numbers: 11111, 22222-AB and 33333", ("SN11111", "SN22222-AB", "SN33333")),
    "Polish plural": ("numery seryjne 11111 i 22222", ("SN11111", "SN22222")),
    "with and without suffix": ("SN12345 and SN12345-AB", ("SN12345", "SN12345-AB")),
}

NONE = {
    "nothing": "",
    "order number": "Order 12345, invoice FA-2025-10455",
    "phone number": "tel. +48 601 234 567",
    "date": "bought on 2025-11-03",
    "label without a number": "I can't find the serial number. Order 88231.",
    "question": "serial number? I don't know. Order 88231",
    "too short": "SN 4",
    "label and a short number": "serial number is 12",
    "inside a word": "isn12345 and disn-12345",
    "letters only": "S/N ABCDEF",
    "a tax number": "NIF 501234567",
}


@pytest.mark.parametrize(("text", "serial"), FOUND.values(), ids=FOUND.keys())
def test_one_serial_number_is_found_in_its_standard_form(text: str, serial: str) -> None:
    assert find_serials(text) == (serial,)


@pytest.mark.parametrize(("text", "serials"), SEVERAL.values(), ids=SEVERAL.keys())
def test_several_serial_numbers_come_in_reading_order_and_each_once(text: str, serials: tuple[str, ...]) -> None:
    assert find_serials(text) == serials


@pytest.mark.parametrize("text", NONE.values(), ids=NONE.keys())
def test_other_numbers_are_no_serial_numbers(text: str) -> None:
    assert find_serials(text) == ()


@pytest.mark.parametrize(
    "text", ["sn " * 20_000, "serial " + " " * 50_000, "12 " * 20_000, "serial number is " * 5_000]
)
def test_hostile_text_takes_no_time(text: str) -> None:
    """Every pattern is bounded, so that a long mail can't stall the desk."""
    assert find_serials(text) == ()
