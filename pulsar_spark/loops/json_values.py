# SPDX-License-Identifier: Apache-2.0
"""Values in JSON to columns, without an object for a value.

A plan is a tree of readers, as in ``avro.py``, which has the columns and the loop over
the values, too. A reader takes the JSON token at a place, appends what the token says
to its column, and returns the place behind the token::

    ReadDocument -- ReadObject --+-- "id":   ReadWhole --> LongColumn
                                 +-- "name": ReadText ---> BytesColumn
                                 +-- "tags": ReadArray --> ListColumn, ReadText

The readers know what most producers write, and leave all else to ``json_tokens``, the
reader of single values. A reader returns ``UNUSUAL`` at a token that it does not know;
then the whole value is read there. So a row that is made here has to be equal to the
row that ``json_tokens`` makes, and what is wrong with a value is never said here.

A reader returns ``REFUSED`` at a token that ``json_tokens`` refuses for sure. Nothing
has been appended then, and the next type of a union may take the token.

This file runs as it is, for tests, and is compiled as ``messages.py`` is, together with
``json_values.pxd``, which gives the types. Without a compiler each value is read by
``json_tokens``, which is faster than this file in Python.

Source: RFC 8259, as far as Python's ``json`` keeps to the RFC.
"""

from __future__ import annotations

from collections.abc import Sequence

from pulsar_spark.loops import avro, json_text
from spark_topics.loops import memory
from spark_topics.loops.memory import new_bytes

#: Which form of this file runs, as ``messages.KERNEL``.
KERNEL = "python" if __file__.endswith((".py", ".pyc")) else "compiled"

#: What readers return instead of a place; see above.
UNUSUAL = -1
REFUSED = -2
_UNUSUAL = UNUSUAL
_REFUSED = REFUSED

#: How deeply tokens that are skipped may be nested.
_MAX_DEPTH = 64

#: Up to so many fields are compared with a name one by one; more are looked up.
_MAX_COMPARED = 12

#: Digits that always fit in 64 bits, without a sign and with it.
_MAX_DIGITS = 19
_MAX_SIGNED_DIGITS = 18

_MAX_INT64 = 2**63 - 1

#: Digits of the longest number that a decimal has room for, and a zero before them.
_MAX_DECIMAL_DIGITS = 39

#: Whole numbers up to this are exact as a double, and so are powers of ten up to 22.
_MAX_EXACT = 2**53
_MAX_POWER = 22

_DAY_SECONDS = 86_400
_SECOND_NANOS = 10**9


# -- objects, arrays, unions -----------------------------------------------------------


class ReadDocument(avro.Reader):
    """Reads a whole value.

    Args:
        column: The columns of the topic, as a struct.
        reader: Reads the token into these columns.
        most_bytes: A longer value is unusual.
    """

    def __init__(
        self, column: avro.StructColumn, reader: avro.Reader, most_bytes: int
    ) -> None:
        super().__init__(1)
        self._column = column
        self._reader = reader
        self._most_bytes = most_bytes

    def read(self, source: avro.Source, offset: int) -> int:
        """Append a row."""
        size = source.end - offset
        if size > self._most_bytes:
            return _UNUSUAL
        if not memory.is_text(source.data, offset, size):
            return _UNUSUAL
        offset = _next(source, offset)
        if _byte(source, offset) == json_text.LOWER_N:
            offset = _word(source, offset, b"null")
            if offset >= 0:
                self._column.append_null()
        else:
            offset = self._reader.read(source, offset)
        if offset < 0:
            return _UNUSUAL
        return offset if _next(source, offset) == source.end else _UNUSUAL


class ReadObject(avro.Reader):
    """Reads an object as a struct.

    Args:
        column: The structs.
        names: The name of each field of the struct, in UTF-8; None for a field that is
            not written.
        readers: Of each field, for tokens but null.
        absent: Of each field, for null or no token: takes no bytes.
    """

    def __init__(
        self,
        column: avro.StructColumn,
        names: Sequence[bytes | None],
        readers: list[avro.Reader],
        absent: list[avro.Reader],
    ) -> None:
        super().__init__(2)
        self._column = column
        self._columns = column.children
        self._readers = readers
        self._absent = absent
        self._count = len(readers)
        self._numbers = {
            name: number for number, name in enumerate(names) if name is not None
        }
        self._names = avro.Source()
        self._names.load(b"".join(name or b"" for name in names))
        self._ends = new_bytes(4 * (self._count + 1)).cast("i")
        self._is_written = new_bytes(self._count)
        for number, name in enumerate(names):
            self._ends[number + 1] = self._ends[number] + len(name or b"")
            self._is_written[number] = name is not None

    def read(self, source: avro.Source, offset: int) -> int:  # noqa: C901 - as in avro.py
        """Append a struct."""
        column = self._column
        columns = self._columns
        row = column.rows
        if _byte(source, offset) != json_text.OPEN_OBJECT:
            return _REFUSED
        offset = _next(source, offset + 1)
        expected = 0
        byte = _byte(source, offset)
        if byte == json_text.CLOSE_OBJECT:
            offset += 1
        while byte != json_text.CLOSE_OBJECT:
            end = _plain_end(source, offset)
            if end < 0:
                return _UNUSUAL
            number = self._field(source, offset + 1, end - 1, expected)
            offset = _behind_colon(source, end)
            if offset < 0:
                return _UNUSUAL
            if number < 0:
                offset = _skip(source, offset, 0)
            else:
                expected = number + 1
                if json_text.rows_of(columns, number) != row:  # the name came before
                    return _UNUSUAL
                readers = self._readers
                if _byte(source, offset) == json_text.LOWER_N:
                    readers = self._absent
                    offset = _word(source, offset, b"null")
                    if offset < 0:
                        return _UNUSUAL
                offset = json_text.read_with(readers, number, source, offset)
            if offset < 0:
                return _UNUSUAL
            offset = _next(source, offset)
            byte = _byte(source, offset)
            if byte == json_text.COMMA:
                offset = _next(source, offset + 1)
            elif byte == json_text.CLOSE_OBJECT:
                offset += 1
            else:
                return _UNUSUAL
        for number in range(self._count):
            if json_text.rows_of(columns, number) != row:
                continue
            if json_text.read_with(self._absent, number, source, offset) < 0:
                return _UNUSUAL
        column.rows = row + 1
        return offset

    def _field(self, source: avro.Source, offset: int, end: int, expected: int) -> int:
        """Return which field has a name; -1 for none.

        Args:
            source: Has the name.
            offset: Where the name begins.
            end: Where the name ends.
            expected: Which field is likely to come.
        """
        if expected < self._count and self._is_named(expected, source, offset, end):
            return expected
        if self._count <= _MAX_COMPARED:
            for number in range(self._count):
                if self._is_named(number, source, offset, end):
                    return number
            return -1
        return self._numbers.get(memory.part(source.data, offset, end), -1)

    def _is_named(
        self, number: int, source: avro.Source, offset: int, end: int
    ) -> bool:
        """Return whether a field has a name."""
        start = self._ends[number]
        size = self._ends[number + 1] - start
        if size != end - offset or not self._is_written[number]:
            return False
        return json_text.is_same(self._names, start, source, offset, size)


class ReadArray(avro.Reader):
    """Reads an array as a list.

    Args:
        column: The lists.
        reader: Of an item, for tokens but null.
        absent: Of an item that is null.
    """

    def __init__(
        self, column: avro.ListColumn, reader: avro.Reader, absent: avro.Reader
    ) -> None:
        super().__init__(2)
        self._column = column
        self._reader = reader
        self._absent = absent

    def read(self, source: avro.Source, offset: int) -> int:
        """Append a list."""
        column = self._column
        items = column.items
        row = column.rows
        if _byte(source, offset) != json_text.OPEN_ARRAY:
            return _REFUSED
        offset = _next(source, offset + 1)
        byte = _byte(source, offset)
        if byte == json_text.CLOSE_ARRAY:
            offset += 1
        while byte != json_text.CLOSE_ARRAY:
            items.reserve(items.rows + 1)
            offset = _read_or_null(self._reader, self._absent, source, offset)
            if offset < 0:
                return _UNUSUAL
            offset = _next(source, offset)
            byte = _byte(source, offset)
            if byte == json_text.COMMA:
                offset = _next(source, offset + 1)
            elif byte == json_text.CLOSE_ARRAY:
                offset += 1
            else:
                return _UNUSUAL
        column.offsets[row + 1] = items.rows
        column.rows = row + 1
        return offset


class ReadMap(avro.Reader):
    """Reads an object as a map.

    Args:
        column: The maps: lists of structs of a key and a value.
        keys: Of these structs.
        reader: Of a value, for tokens but null.
        absent: Of a value that is null.
    """

    def __init__(
        self,
        column: avro.ListColumn,
        keys: avro.BytesColumn,
        reader: avro.Reader,
        absent: avro.Reader,
    ) -> None:
        super().__init__(2)
        self._column = column
        self._keys = keys
        self._reader = reader
        self._absent = absent

    def read(self, source: avro.Source, offset: int) -> int:
        """Append a map."""
        column = self._column
        items = column.items
        row = column.rows
        if _byte(source, offset) != json_text.OPEN_OBJECT:
            return _REFUSED
        offset = _next(source, offset + 1)
        byte = _byte(source, offset)
        if byte == json_text.CLOSE_OBJECT:
            offset += 1
        while byte != json_text.CLOSE_OBJECT:
            items.reserve(items.rows + 1)
            offset = _text(self._keys, source, offset)
            if offset < 0:
                return _UNUSUAL
            offset = _behind_colon(source, offset)
            if offset < 0:
                return _UNUSUAL
            offset = _read_or_null(self._reader, self._absent, source, offset)
            if offset < 0:
                return _UNUSUAL
            items.rows += 1
            offset = _next(source, offset)
            byte = _byte(source, offset)
            if byte == json_text.COMMA:
                offset = _next(source, offset + 1)
            elif byte == json_text.CLOSE_OBJECT:
                offset += 1
            else:
                return _UNUSUAL
        if not column.has_twins:
            column.has_twins = avro.has_twins(self._keys, column.offsets[row])
        column.offsets[row + 1] = items.rows
        column.rows = row + 1
        return offset


class ReadFirst(avro.Reader):
    """Reads a union: the first type that takes the token is the type of the value.

    Args:
        readers: Of each type, in the order in which they are asked.
    """

    def __init__(self, readers: list[avro.Reader]) -> None:
        super().__init__(1)
        self._readers = readers
        self._count = len(readers)

    def read(self, source: avro.Source, offset: int) -> int:
        """Let the first reader read that does not refuse the token."""
        for number in range(self._count):
            end = json_text.read_with(self._readers, number, source, offset)
            if end != _REFUSED:
                return end
        return _REFUSED


class ReadBranch(avro.Reader):
    """Reads a type of a union otherwise than the type was written.

    Args:
        scratch: A column of the type, which has no rows.
        own: Takes the values of the type, and no other tokens, into that column.
        reader: Reads what ``own`` takes; or takes no bytes, where nothing is wanted.
    """

    def __init__(
        self, scratch: avro.Column, own: avro.Reader, reader: avro.Reader
    ) -> None:
        super().__init__(1)
        self._scratch = scratch
        self._own = own
        self._reader = reader

    def read(self, source: avro.Source, offset: int) -> int:
        """Read a value of the type; refuse a value of another type."""
        self._scratch.reserve(1)
        end = self._own.read(source, offset)
        self._scratch.cut(0)
        if end < 0:
            return end
        return end if self._reader.read(source, offset) >= 0 else _UNUSUAL


# -- numbers, booleans -----------------------------------------------------------------


class ReadBoolean(avro.Reader):
    """Reads true and false."""

    def __init__(self, column: avro.FixedColumn) -> None:
        super().__init__(4)
        self._column = column

    def read(self, source: avro.Source, offset: int) -> int:
        """Append 0 or 1."""
        column = self._column
        byte = _byte(source, offset)
        if byte == json_text.LOWER_T:
            end = _word(source, offset, b"true")
        elif byte == json_text.LOWER_F:
            end = _word(source, offset, b"false")
        else:
            return _REFUSED
        if end < 0:
            return _UNUSUAL
        column.data[column.rows] = byte == json_text.LOWER_T
        column.rows += 1
        return end


class ReadWhole(avro.Reader):
    """Reads whole numbers, and converts them to another unit.

    Args:
        column: The destination.
        minimum, maximum: The allowed range, as the number is written.
        factor: The multiplier.
        divisor: The divisor, rounded down.
    """

    def __init__(
        self,
        column: avro.LongColumn,
        minimum: int,
        maximum: int,
        factor: int = 1,
        divisor: int = 1,
    ) -> None:
        super().__init__(1)
        self._column = column
        self._minimum = minimum
        self._maximum = maximum
        self._factor = factor
        self._divisor = divisor

    def read(self, source: avro.Source, offset: int) -> int:
        """Append a number."""
        column = self._column
        value = _whole(source, offset)
        offset = source.next
        if offset < 0:
            return offset
        if value < self._minimum or value > self._maximum:
            return _REFUSED
        value = value * self._factor
        if self._divisor > 1:
            value = _floor(value, self._divisor)
        row = column.rows
        column.values[row] = value
        column.rows = row + 1
        return offset


class Number:
    """The parts of a number: -12.5e3 has the digits 125, one behind the point.

    Attributes:
        is_negative: Whether it begins with a minus.
        digits: The whole number of all digits, where there are not more than 19.
        count: How many digits there are, leading zeros among them.
        fraction: How many of them are behind the point.
        exponent: What follows ``e``.
        has_exponent: Whether there is an ``e``.
    """

    def __init__(self) -> None:
        self.is_negative = self.has_exponent = False
        self.digits = self.count = self.fraction = self.exponent = 0

    def read(self, source: avro.Source, offset: int) -> int:
        """Take a number apart; return the place behind the number."""
        self.is_negative = _byte(source, offset) == json_text.MINUS
        if self.is_negative:
            offset += 1
        first = offset
        digits = 0
        byte = _byte(source, offset)
        while _is_digit(byte):
            if offset - first < _MAX_DIGITS:
                digits = digits * 10 + (byte - json_text.ZERO)
            offset += 1
            byte = _byte(source, offset)
        self.count = offset - first
        if self.count == 0:
            return _UNUSUAL
        if self.count > 1 and _byte(source, first) == json_text.ZERO:
            return _UNUSUAL
        self.digits = digits
        self.fraction = self.exponent = 0
        if byte == json_text.POINT:
            offset = self._read_fraction(source, offset + 1)
            if offset < 0:
                return _UNUSUAL
        self.has_exponent = _byte(source, offset) | 0x20 == json_text.LOWER_E
        if not self.has_exponent:
            return offset
        return self._read_exponent(source, offset + 1)

    def _read_fraction(self, source: avro.Source, offset: int) -> int:
        first = offset
        digits = self.digits
        byte = _byte(source, offset)
        while _is_digit(byte):
            if self.count < _MAX_DIGITS:
                digits = digits * 10 + (byte - json_text.ZERO)
            self.count += 1
            offset += 1
            byte = _byte(source, offset)
        self.digits = digits
        self.fraction = offset - first
        return offset if self.fraction else _UNUSUAL

    def _read_exponent(self, source: avro.Source, offset: int) -> int:
        byte = _byte(source, offset)
        is_negative = byte == json_text.MINUS
        if is_negative or byte == json_text.PLUS:
            offset += 1
        first = offset
        exponent = 0
        byte = _byte(source, offset)
        while _is_digit(byte) and offset - first < 4:
            exponent = exponent * 10 + (byte - json_text.ZERO)
            offset += 1
            byte = _byte(source, offset)
        if offset == first or _is_digit(byte):
            return _UNUSUAL
        self.exponent = -exponent if is_negative else exponent
        return offset


class ReadFloat(avro.Reader):
    """Reads a number, or NaN and the infinities in quotes.

    Args:
        column: Has 4 bytes a value for a float, 8 for a double.
    """

    def __init__(self, column: avro.FixedColumn) -> None:
        super().__init__(1)
        self._column = column
        self._number = Number()

    def read(self, source: avro.Source, offset: int) -> int:
        """Append a number."""
        byte = _byte(source, offset)
        if byte == json_text.QUOTE:
            return self._read_name(source, offset)
        if byte != json_text.MINUS and not _is_digit(byte):
            # Without quotes NaN and Infinity are left to others.
            is_name = byte == json_text.UPPER_N or byte == json_text.UPPER_I
            return _UNUSUAL if is_name else _REFUSED
        number = self._number
        end = number.read(source, offset)
        if end < 0:
            return _UNUSUAL
        power = number.exponent - number.fraction
        if (
            number.count <= _MAX_DIGITS
            and number.digits <= _MAX_EXACT
            and power >= -_MAX_POWER
            and power <= _MAX_POWER
        ):  # both are exact, so that the result is rounded once
            value = json_text.scaled(number.digits, power)
            avro.put_float(self._column, -value if number.is_negative else value)
            return end
        if end - offset > 60:
            return _UNUSUAL
        avro.put_float(self._column, json_text.as_float(source, offset, end))
        return end

    def _read_name(self, source: avro.Source, offset: int) -> int:
        """Append NaN or an infinity, the names of which are in quotes."""
        byte = _byte(source, offset + 1)
        if byte == json_text.UPPER_N:
            end, value = _word(source, offset, b'"NaN"'), float("nan")
        elif byte == json_text.UPPER_I:
            end, value = _word(source, offset, b'"Infinity"'), float("inf")
        elif byte == json_text.MINUS:
            end, value = _word(source, offset, b'"-Infinity"'), float("-inf")
        else:
            return _UNUSUAL if byte == json_text.BACKSLASH else _REFUSED
        if end >= 0:
            avro.put_float(self._column, value)
        return end


class ReadDecimal(avro.Reader):
    """Reads a decimal, a number that may be in quotes.

    Args:
        column: Has 16 bytes a value.
        precision: How many digits the column has room for.
        scale: How many of them are behind the point.
        is_quoted: Whether it may be in quotes.
    """

    def __init__(
        self, column: avro.FixedColumn, precision: int, scale: int, is_quoted: bool
    ) -> None:
        super().__init__(1)
        self._column = column
        self._scale = scale
        self._limit = 10**precision
        self._tens = [10**zeros for zeros in range(scale + 1)]
        self._small_limit = 10 ** min(precision, _MAX_SIGNED_DIGITS)
        self._is_quoted = is_quoted
        self._number = Number()

    def read(self, source: avro.Source, offset: int) -> int:
        """Append a number."""
        byte = _byte(source, offset)
        is_text = byte == json_text.QUOTE
        if is_text:
            if not self._is_quoted:
                return _UNUSUAL
            offset += 1
        elif byte != json_text.MINUS and not _is_digit(byte):
            return _UNUSUAL
        number = self._number
        end = number.read(source, offset)
        if end < 0 or number.has_exponent:
            return _UNUSUAL
        if number.fraction > self._scale or number.count > _MAX_DECIMAL_DIGITS:
            return _UNUSUAL
        if not self._put(source, offset, end):
            return _UNUSUAL
        if not is_text:
            return end
        # Behind a mistake the row is taken back.
        return end + 1 if _byte(source, end) == json_text.QUOTE else _UNUSUAL

    def _put(self, source: avro.Source, offset: int, end: int) -> bool:
        """Append the number; return whether the column has room for the number."""
        number = self._number
        zeros = self._scale - number.fraction
        if number.count + zeros <= _MAX_SIGNED_DIGITS:
            value = number.digits
            while zeros > 0:
                value = value * 10
                zeros -= 1
            if value >= self._small_limit:
                return False
            avro.put_decimal(self._column, -value if number.is_negative else value)
            return True
        digits = memory.part(source.data, offset, end).replace(b".", b"")
        large = int(digits) * self._tens[zeros]
        if not -self._limit < large < self._limit:
            return False
        avro.put_large_decimal(self._column, large)
        return True


# -- texts, bytes, enums ---------------------------------------------------------------


class ReadText(avro.Reader):
    """Reads texts, and numbers as the texts of their digits.

    Args:
        column: The texts.
        takes_numbers: Whether a number is a text, too.
        is_ascii: Whether other characters are unusual.
    """

    def __init__(
        self, column: avro.BytesColumn, takes_numbers: bool, is_ascii: bool = False
    ) -> None:
        super().__init__(1)
        self._column = column
        self._takes_numbers = takes_numbers
        self._is_ascii = is_ascii
        self._number = Number()

    def read(self, source: avro.Source, offset: int) -> int:
        """Append a text."""
        column = self._column
        byte = _byte(source, offset)
        if byte == json_text.QUOTE:
            row = column.rows
            end = _text(column, source, offset)
            if self._is_ascii and end >= 0 and not _is_ascii(column, row):
                return _UNUSUAL
            return end
        if not self._takes_numbers:
            return _UNUSUAL
        return _number_text(column, self._number, source, offset)


class ReadBase64(avro.Reader):
    """Reads bytes that a text has in base64.

    Args:
        column: The bytes.
        size: How many there must be; -1 for any number.
    """

    def __init__(self, column: avro.BytesColumn, size: int = -1) -> None:
        super().__init__(2)
        self._column = column
        self._size = size

    def read(self, source: avro.Source, offset: int) -> int:
        """Append bytes."""
        column = self._column
        end = _plain_end(source, offset)
        if end < 0:
            return _UNUSUAL
        offset += 1
        stop = end - 1
        if (stop - offset) % 4:
            return _UNUSUAL
        row = column.rows
        place = column.offsets[row]
        room = place + (stop - offset) // 4 * 3
        if room > column.data_room and not column.make_room(room):
            return _UNUSUAL
        while offset < stop:
            missing = 0
            if offset + 4 == stop:
                missing = _missing(source, stop)
            bits = _bits(source, offset, 4 - missing)
            # Bits that no byte has are zero where a writer made the text.
            if bits < 0 or bits & ((1 << 8 * missing) - 1):
                return _UNUSUAL
            for number in range(3 - missing):
                column.data[place] = bits >> (16 - 8 * number) & 0xFF
                place += 1
            offset += 4
        if self._size >= 0 and place - column.offsets[row] != self._size:
            return _UNUSUAL
        column.offsets[row + 1] = place
        column.rows = row + 1
        return end


class ReadSymbol(avro.Reader):
    """Reads symbols of an enum, and numbers as the texts of their digits.

    Args:
        column: The texts.
        symbols: What is a symbol for the writer and the reader.
    """

    def __init__(self, column: avro.BytesColumn, symbols: frozenset[bytes]) -> None:
        super().__init__(1)
        self._column = column
        self._symbols = symbols
        self._number = Number()

    def read(self, source: avro.Source, offset: int) -> int:
        """Append the text of a symbol."""
        if _byte(source, offset) != json_text.QUOTE:
            return _number_text(self._column, self._number, source, offset)
        end = _plain_end(source, offset)
        if end < 0:
            return _UNUSUAL
        size = end - offset - 2
        if memory.part(source.data, offset + 1, end - 1) not in self._symbols:
            return _UNUSUAL
        if not avro.put_bytes(self._column, source, offset + 1, size):
            return _UNUSUAL
        return end


# -- days, moments, times --------------------------------------------------------------


class ReadMoment(avro.Reader):
    """Reads days, moments and times of day.

    Numbers without a fraction are in the unit of the schema. Java writes numbers with
    nine digits behind the point, which are seconds, arrays of year, month and so on, or
    ISO 8601.

    Args:
        column: The destination.
        whole: Reads numbers without a fraction.
        is_time: Whether these are times of day.
        has_seconds: Whether numbers with a fraction may be seconds.
        unit: Nanoseconds of the column's unit, which divide a second, or are a day.
        minimum, maximum: The range of the column.
    """

    def __init__(
        self,
        column: avro.LongColumn,
        whole: ReadWhole,
        is_time: bool,
        has_seconds: bool,
        unit: int,
        minimum: int,
        maximum: int,
    ) -> None:
        super().__init__(1)
        self._column = column
        self._whole = whole
        self._is_time = is_time
        self._has_seconds = has_seconds
        self._unit = unit
        self._per_second = _SECOND_NANOS // unit
        self._most_seconds = _MAX_INT64 // max(self._per_second, 1) - 1
        self._minimum = minimum
        self._maximum = maximum
        self._number = Number()
        self._seconds = self._nanos = 0
        self._parts = new_bytes(8 * 7).cast("q")

    def read(self, source: avro.Source, offset: int) -> int:
        """Append a day, a moment or a time."""
        byte = _byte(source, offset)
        if byte == json_text.QUOTE:
            return self._read_text(source, offset + 1)
        if byte == json_text.OPEN_ARRAY:
            return self._read_parts(source, offset + 1)
        if byte != json_text.MINUS and not _is_digit(byte):
            return _REFUSED
        end = self._whole.read(source, offset)
        if end != _UNUSUAL or not self._has_seconds:
            return end
        return self._read_seconds(source, offset)

    def _read_seconds(self, source: avro.Source, offset: int) -> int:
        number = self._number
        end = number.read(source, offset)
        if end < 0 or number.has_exponent:
            return _UNUSUAL
        if number.fraction != 9 or number.count > _MAX_DIGITS:
            return _UNUSUAL
        seconds = number.digits // _SECOND_NANOS
        nanos = number.digits - seconds * _SECOND_NANOS
        if number.is_negative:
            seconds = -seconds
            if nanos > 0:
                seconds -= 1
                nanos = _SECOND_NANOS - nanos
        return end if self._put(seconds, nanos) else _UNUSUAL

    def _read_text(self, source: avro.Source, offset: int) -> int:
        """Read ``2024-02-29T12:34:56.123Z``, or ``2024-02-29``, or a time."""
        self._seconds = self._nanos = 0
        if self._is_time:
            offset = self._read_time(source, offset)
        else:
            offset = self._read_day(source, offset)
            byte = _byte(source, offset) if offset >= 0 else 0
            if byte == json_text.UPPER_T or byte == json_text.SPACE:
                offset = self._read_time(source, offset + 1)
                if offset >= 0:
                    offset = self._read_zone(source, offset)
        if offset < 0 or _byte(source, offset) != json_text.QUOTE:
            return _UNUSUAL
        return offset + 1 if self._put(self._seconds, self._nanos) else _UNUSUAL

    def _read_day(self, source: avro.Source, offset: int) -> int:
        year = _digits(source, offset, 4)
        month = _digits(source, offset + 5, 2)
        day = _digits(source, offset + 8, 2)
        if _byte(source, offset + 4) != json_text.MINUS:
            return _UNUSUAL
        if _byte(source, offset + 7) != json_text.MINUS:
            return _UNUSUAL
        if not _is_day(year, month, day):
            return _UNUSUAL
        self._seconds = _days(year, month, day) * _DAY_SECONDS
        return offset + 10

    def _read_time(self, source: avro.Source, offset: int) -> int:
        hour = _digits(source, offset, 2)
        minute = _digits(source, offset + 3, 2)
        second = _digits(source, offset + 6, 2)
        if _byte(source, offset + 2) != json_text.COLON:
            return _UNUSUAL
        if _byte(source, offset + 5) != json_text.COLON:
            return _UNUSUAL
        if not _is_time_of_day(hour, minute, second, 0):
            return _UNUSUAL
        self._seconds += hour * 3600 + minute * 60 + second
        offset += 8
        if _byte(source, offset) != json_text.POINT:
            return offset
        first = offset + 1
        offset = _digits_end(source, first)
        count = offset - first
        if count == 0 or count > 9:
            return _UNUSUAL
        nanos = _digits(source, first, count)
        while count < 9:
            nanos = nanos * 10
            count += 1
        self._nanos = nanos
        return offset

    def _read_zone(self, source: avro.Source, offset: int) -> int:
        byte = _byte(source, offset)
        if byte == json_text.QUOTE:
            return offset
        if byte == json_text.UPPER_Z:
            return offset + 1
        if byte != json_text.PLUS and byte != json_text.MINUS:
            return _UNUSUAL
        hour = _digits(source, offset + 1, 2)
        minute = _digits(source, offset + 4, 2)
        if hour < 0 or minute < 0 or _byte(source, offset + 3) != json_text.COLON:
            return _UNUSUAL
        shift = hour * 3600 + minute * 60
        self._seconds += shift if byte == json_text.MINUS else -shift
        return offset + 6

    def _read_parts(self, source: avro.Source, offset: int) -> int:
        """Read ``[2024,2,29,12,34,56,123456789]``, or fewer numbers."""
        parts = self._parts
        for number in range(7):
            parts[number] = 0
        count = 0
        byte = json_text.COMMA
        while byte == json_text.COMMA:
            value = _whole(source, _next(source, offset))
            offset = source.next
            if offset < 0 or count == 7 or value < 0 or value >= _SECOND_NANOS:
                return _UNUSUAL
            parts[count] = value
            count += 1
            offset = _next(source, offset)
            byte = _byte(source, offset)
            offset += 1
        if byte != json_text.CLOSE_ARRAY:
            return _UNUSUAL
        first = 0 if self._is_time else 3
        if count - first < 2 and (self._is_time or count != 3):
            return _UNUSUAL
        if count - first > 4:
            return _UNUSUAL
        seconds = 0
        if not self._is_time:
            if parts[0] > 9999 or not _is_day(parts[0], parts[1], parts[2]):
                return _UNUSUAL
            seconds = _days(parts[0], parts[1], parts[2]) * _DAY_SECONDS
        hour = parts[first]
        minute = parts[first + 1]
        second = parts[first + 2]
        nanos = parts[first + 3]
        if not _is_time_of_day(hour, minute, second, nanos):
            return _UNUSUAL
        seconds += hour * 3600 + minute * 60 + second
        return offset if self._put(seconds, nanos) else _UNUSUAL

    def _put(self, seconds: int, nanos: int) -> bool:
        """Append a moment or a time; return whether the column has room.

        Args:
            seconds: From 1970 or from midnight on, rounded down.
            nanos: Nanoseconds of the second.
        """
        if seconds > self._most_seconds or seconds < -self._most_seconds:
            return False
        if self._per_second:
            value = seconds * self._per_second + nanos // self._unit
        else:
            value = _floor(seconds, _DAY_SECONDS)
        if value < self._minimum or value > self._maximum:
            return False
        column = self._column
        column.values[column.rows] = value
        column.rows += 1
        return True


# -- helpers ---------------------------------------------------------------------------


def _byte(source: avro.Source, offset: int) -> int:
    """Return a byte; 0 behind the end of the value, which begins no token."""
    return source.data[offset] if offset < source.end else 0


def _is_digit(byte: int) -> bool:
    return byte >= json_text.ZERO and byte <= json_text.NINE


def _next(source: avro.Source, offset: int) -> int:
    """Return the place of the next byte that is no white space."""
    while offset < source.end:
        byte = source.data[offset]
        if byte > json_text.SPACE or not (
            byte == json_text.SPACE
            or byte == json_text.LINE_FEED
            or byte == json_text.RETURN
            or byte == json_text.TAB
        ):
            break
        offset += 1
    return offset


def _behind_colon(source: avro.Source, offset: int) -> int:
    """Return the place of the token behind a name's colon; UNUSUAL without a colon."""
    offset = _next(source, offset)
    if _byte(source, offset) != json_text.COLON:
        return _UNUSUAL
    return _next(source, offset + 1)


def _read_or_null(
    reader: avro.Reader, absent: avro.Reader, source: avro.Source, offset: int
) -> int:
    """Read a token; for null append the value that null means."""
    if _byte(source, offset) != json_text.LOWER_N:
        return reader.read(source, offset)
    end = _word(source, offset, b"null")
    if end < 0 or absent.read(source, end) < 0:
        return _UNUSUAL
    return end


def _word(source: avro.Source, offset: int, word: bytes) -> int:
    """Return the place behind a word; UNUSUAL where another word is."""
    size = len(word)
    if size > source.end - offset:
        return _UNUSUAL
    for number in range(size):
        if source.data[offset + number] != word[number]:
            return _UNUSUAL
    return offset + size


def _plain_end(source: avro.Source, offset: int) -> int:
    """Return the place behind a text in quotes; UNUSUAL for a text with escapes."""
    if _byte(source, offset) != json_text.QUOTE:
        return _UNUSUAL
    end = json_text.text_end(source, offset + 1)
    return end + 1 if _byte(source, end) == json_text.QUOTE else _UNUSUAL


def _skip_text(source: avro.Source, offset: int) -> int:
    """Return the place behind a text in quotes."""
    offset = json_text.text_end(source, offset + 1)
    while _byte(source, offset) == json_text.BACKSLASH:
        end = _escape_end(source, offset)
        if end < 0:
            return _UNUSUAL
        offset = json_text.text_end(source, end)
    return offset + 1 if _byte(source, offset) == json_text.QUOTE else _UNUSUAL


def _escape_end(source: avro.Source, offset: int) -> int:
    """Return the place behind an escape, which begins with a backslash."""
    byte = _byte(source, offset + 1)
    if byte == json_text.LOWER_U:
        return offset + 6 if _hex(source, offset + 2) >= 0 else _UNUSUAL
    return offset + 2 if _escaped(byte) > 0 else _UNUSUAL


def _escaped(byte: int) -> int:
    """Return the character that a letter behind a backslash means; 0 for none."""
    if (
        byte == json_text.QUOTE
        or byte == json_text.BACKSLASH
        or byte == json_text.SLASH
    ):
        return byte
    if byte == json_text.LOWER_B:
        return 0x08
    if byte == json_text.LOWER_F:
        return 0x0C
    if byte == json_text.LOWER_N:
        return 0x0A
    if byte == json_text.LOWER_R:
        return 0x0D
    return 0x09 if byte == json_text.LOWER_T else 0


def _hex(source: avro.Source, offset: int) -> int:
    """Return the number of four hexadecimal digits; -1 for other characters."""
    value = 0
    for number in range(4):
        byte = _byte(source, offset + number)
        if _is_digit(byte):
            digit = byte - json_text.ZERO
        else:
            digit = (byte | 0x20) - json_text.LOWER_A + 10
            if digit < 10 or digit > 15:
                return -1
        value = value << 4 | digit
    return value


def _text(column: avro.BytesColumn, source: avro.Source, offset: int) -> int:
    """Append a text in quotes; return the place behind the text."""
    if _byte(source, offset) != json_text.QUOTE:
        return _UNUSUAL
    begin = offset + 1
    end = json_text.text_end(source, begin)
    if _byte(source, end) == json_text.QUOTE:
        if not avro.put_bytes(column, source, begin, end - begin):
            return _UNUSUAL
        return end + 1
    return _put_escaped(column, source, offset)


def _put_escaped(column: avro.BytesColumn, source: avro.Source, offset: int) -> int:
    """Append a text with escapes, which take more bytes than their characters."""
    end = _skip_text(source, offset)
    if end < 0:
        return _UNUSUAL
    row = column.rows
    place = column.offsets[row]
    room = place + end - offset
    if room > column.data_room and not column.make_room(room):
        return _UNUSUAL
    offset += 1
    while offset < end - 1:
        byte = source.data[offset]
        if byte != json_text.BACKSLASH:
            column.data[place] = byte
            place += 1
            offset += 1
            continue
        byte = source.data[offset + 1]
        if byte != json_text.LOWER_U:
            column.data[place] = _escaped(byte)
            place += 1
            offset += 2
            continue
        code = _hex(source, offset + 2)
        offset += 6
        if code >= 0xD800 and code < 0xE000:  # half of a pair
            if _byte(source, offset) != json_text.BACKSLASH:
                return _UNUSUAL
            if _byte(source, offset + 1) != json_text.LOWER_U:
                return _UNUSUAL
            low = _hex(source, offset + 2)
            if code >= 0xDC00 or low < 0xDC00 or low >= 0xE000:
                return _UNUSUAL
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
            offset += 6
        place = _put_character(column, place, code)
    column.offsets[row + 1] = place
    column.rows = row + 1
    return end


def _put_character(column: avro.BytesColumn, place: int, code: int) -> int:
    """Write a character in UTF-8; return the place behind the character."""
    if code < 0x80:
        column.data[place] = code
        return place + 1
    if code < 0x800:
        column.data[place] = 0xC0 | code >> 6
        column.data[place + 1] = 0x80 | code & 0x3F
        return place + 2
    if code < 0x10000:
        column.data[place] = 0xE0 | code >> 12
        column.data[place + 1] = 0x80 | code >> 6 & 0x3F
        column.data[place + 2] = 0x80 | code & 0x3F
        return place + 3
    column.data[place] = 0xF0 | code >> 18
    column.data[place + 1] = 0x80 | code >> 12 & 0x3F
    column.data[place + 2] = 0x80 | code >> 6 & 0x3F
    column.data[place + 3] = 0x80 | code & 0x3F
    return place + 4


def _is_ascii(column: avro.BytesColumn, row: int) -> bool:
    for place in range(column.offsets[row], column.offsets[row + 1]):
        if column.data[place] > 0x7F:
            return False
    return True


def _number_text(
    column: avro.BytesColumn, number: Number, source: avro.Source, offset: int
) -> int:
    """Append the text of a number; return the place behind the number."""
    byte = _byte(source, offset)
    if byte != json_text.MINUS and not _is_digit(byte):
        return _UNUSUAL
    end = number.read(source, offset)
    if end < 0 or not avro.put_bytes(column, source, offset, end - offset):
        return _UNUSUAL
    return end


def _missing(source: avro.Source, end: int) -> int:
    """Return how many characters of the last four are missing, and written as ``=``."""
    if source.data[end - 1] != json_text.EQUALS:
        return 0
    return 2 if source.data[end - 2] == json_text.EQUALS else 1


def _bits(source: avro.Source, offset: int, count: int) -> int:
    """Return the 24 bits of four characters of base64; -1 for other characters."""
    bits = 0
    for number in range(count):
        sextet = _sextet(source.data[offset + number])
        if sextet < 0:
            return -1
        bits = bits | sextet << (18 - 6 * number)
    return bits


def _sextet(byte: int) -> int:
    """Return the six bits of a character of base64; -1 for another character."""
    if byte >= json_text.UPPER_A and byte <= json_text.UPPER_Z:
        return byte - json_text.UPPER_A
    if byte >= json_text.LOWER_A and byte <= json_text.LOWER_Z:
        return byte - json_text.LOWER_A + 26
    if _is_digit(byte):
        return byte - json_text.ZERO + 52
    if byte == json_text.PLUS:
        return 62
    return 63 if byte == json_text.SLASH else -1


def _whole(source: avro.Source, offset: int) -> int:
    """Return a number without a fraction.

    Sets ``source.next`` to the place behind the number, UNUSUAL or REFUSED.
    """
    byte = _byte(source, offset)
    is_negative = byte == json_text.MINUS
    if is_negative:
        offset += 1
        byte = _byte(source, offset)
    first = offset
    value = 0
    while _is_digit(byte):
        if offset - first < _MAX_DIGITS:
            value = value * 10 + (byte - json_text.ZERO)
        offset += 1
        byte = _byte(source, offset)
    count = offset - first
    source.next = _UNUSUAL
    if count == 0:
        if not is_negative:
            source.next = _REFUSED
        return 0
    if count > 1 and source.data[first] == json_text.ZERO:
        return 0
    if count > _MAX_DIGITS or value > _MAX_INT64 + is_negative:
        return 0
    if byte == json_text.POINT or byte | 0x20 == json_text.LOWER_E:
        return 0
    source.next = offset
    # In C the difference has no sign, and the lowest number no positive counterpart.
    number = 0 - value if is_negative else value
    return number  # noqa: RET504 - with a sign


def _digits(source: avro.Source, offset: int, count: int) -> int:
    """Return the number of ``count`` digits; -1 for other characters."""
    value = 0
    for number in range(count):
        byte = _byte(source, offset + number)
        if not _is_digit(byte):
            return -1
        value = value * 10 + (byte - json_text.ZERO)
    return value


def _skip(source: avro.Source, offset: int, depth: int) -> int:
    """Return the place behind a token of any type."""
    byte = _byte(source, offset)
    if byte == json_text.QUOTE:
        return _skip_text(source, offset)
    if byte == json_text.LOWER_T:
        return _word(source, offset, b"true")
    if byte == json_text.LOWER_F:
        return _word(source, offset, b"false")
    if byte == json_text.LOWER_N:
        return _word(source, offset, b"null")
    if byte == json_text.OPEN_OBJECT or byte == json_text.OPEN_ARRAY:
        return _skip_nested(source, offset, depth + 1)
    return _skip_number(source, offset)


def _skip_nested(source: avro.Source, offset: int, depth: int) -> int:
    """Return the place behind an object or an array."""
    is_object = source.data[offset] == json_text.OPEN_OBJECT
    close = json_text.CLOSE_OBJECT if is_object else json_text.CLOSE_ARRAY
    if depth > _MAX_DEPTH:
        return _UNUSUAL
    offset = _next(source, offset + 1)
    byte = _byte(source, offset)
    if byte == close:
        return offset + 1
    while byte != close:
        if is_object:
            offset = _skip_name(source, offset)
            if offset < 0:
                return _UNUSUAL
        offset = _skip(source, offset, depth)
        if offset < 0:
            return _UNUSUAL
        offset = _next(source, offset)
        byte = _byte(source, offset)
        if byte == json_text.COMMA:
            offset = _next(source, offset + 1)
        elif byte == close:
            offset += 1
        else:
            return _UNUSUAL
    return offset


def _skip_name(source: avro.Source, offset: int) -> int:
    """Return the place of the token that follows a name and a colon."""
    if _byte(source, offset) != json_text.QUOTE:
        return _UNUSUAL
    offset = _skip_text(source, offset)
    if offset < 0:
        return _UNUSUAL
    return _behind_colon(source, offset)


def _skip_number(source: avro.Source, offset: int) -> int:
    """Return the place behind a number."""
    if _byte(source, offset) == json_text.MINUS:
        offset += 1
    first = offset
    offset = _digits_end(source, first)
    if offset == first or (offset > first + 1 and source.data[first] == json_text.ZERO):
        return _UNUSUAL
    if _byte(source, offset) == json_text.POINT:
        first = offset + 1
        offset = _digits_end(source, first)
        if offset == first:
            return _UNUSUAL
    if _byte(source, offset) | 0x20 == json_text.LOWER_E:
        first = offset + 1
        byte = _byte(source, first)
        if byte == json_text.MINUS or byte == json_text.PLUS:
            first += 1
        offset = _digits_end(source, first)
        if offset == first:
            return _UNUSUAL
    return offset


def _digits_end(source: avro.Source, offset: int) -> int:
    """Return the place behind digits, of which there may be none."""
    byte = _byte(source, offset)
    while _is_digit(byte):
        offset += 1
        byte = _byte(source, offset)
    return offset


def _is_day(year: int, month: int, day: int) -> bool:
    """Return whether there is such a day."""
    if year < 0 or month < 1 or month > 12 or day < 1 or day > 31:
        return False
    if month == 2:
        is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        return day <= (29 if is_leap else 28)
    return day <= 30 or (month != 4 and month != 6 and month != 9 and month != 11)


def _days(year: int, month: int, day: int) -> int:
    """Return the number of a day, 0 for 1970-01-01; the year is not below 0.

    A year is counted from March on, so that a leap day is its last.
    """
    if month <= 2:
        year += 399  # the year before, in a cycle of 400 of as many days
        month += 12
    else:
        year += 400
    of_year = (153 * (month - 3) + 2) // 5 + day - 1
    days = year * 365 + year // 4 - year // 100 + year // 400 + of_year
    return days - 719_468 - 146_097


def _is_time_of_day(hour: int, minute: int, second: int, nanos: int) -> bool:
    """Return whether there is such a time."""
    if hour < 0 or minute < 0 or second < 0 or nanos >= _SECOND_NANOS:
        return False
    return hour < 24 and minute < 60 and second < 60


def _floor(value: int, divisor: int) -> int:
    """Return a quotient, rounded down; C rounds towards zero."""
    if value < 0:
        return -(-(value + 1) // divisor) - 1
    return value // divisor
