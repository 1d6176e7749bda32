/* Counts lines by their distinct text, with the same results as logparse.ingest.counting.PlainCounter (tested).
 *
 * A Counter gets blocks of whole lines and sorts each line:
 *
 *  - A line with a marker of a record format becomes an *entry* (its text) and a *cell* (a count per clock and
 *    bracket).  If it begins with "[date time][LIB][n]", the entry lacks the clock, the third bracket and addresses.
 *  - A line with a marker of a block format is an *event*.  Events are returned as places in the stream, in order.
 *  - All other lines are counted as foreign or blank.
 *
 * If a prefixed record begins inside a line, the line is cut there, provided that the beginning is certain
 * (`record_inside`).  `take` returns entries and cells, and clears them.
 *
 * The scan uses no Python object but the block, and runs without the interpreter's lock.  A file's bytes are hashed
 * piece by piece while they are read, because reading them again for the hash would cost half as much as counting.
 */
#define _DEFAULT_SOURCE /* pread */
#define _FILE_OFFSET_BITS 64
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifndef _WIN32
#include <unistd.h>
#endif
#ifdef __GLIBC__
#include <malloc.h>
#endif

#define VERSION 4  /* logparse.ingest.counting checks it: increment it with every change of arguments or results */
#define CLOCK 21   /* bytes of "[YYYY-MM-DD hh:mm:ss]" */
#define BRACKET 18 /* maximum digits of a process or thread */
#define NONE UINT32_MAX
#define EVENT 40          /* estimated bytes of an event, which becomes a line, an outcome and its records */
#define CHUNK (1 << 18) /* bytes read at a time: they fit the cache together with the entries */
enum { RECORD = 1, BLOCK = 2 };  /* kinds of markers */
enum { MASKED = 1, TORN = 2 };   /* kinds of entries */

/* ------------------------------------------------------------------------------------------- growing arrays */

typedef struct {
    char *data;
    size_t used, size;
} Bytes;

/* Makes room for `more` bytes at the end and returns it, or NULL without memory.  Earlier content may move. */
static char *room(Bytes *bytes, size_t more)
{
    if (more > SIZE_MAX / 4 || bytes->used > SIZE_MAX / 4)
        return NULL;
    if (bytes->size - bytes->used < more) {
        size_t size = bytes->size ? bytes->size : 4096;
        while (size - bytes->used < more)
            size *= 2;
        char *data = realloc(bytes->data, size);
        if (!data)
            return NULL;
        bytes->data = data;
        bytes->size = size;
    }
    return bytes->data + bytes->used;
}

static int append(Bytes *bytes, const void *data, size_t length)
{
    char *at = room(bytes, length);
    if (!at)
        return -1;
    if (length)
        memcpy(at, data, length);
    bytes->used += length;
    return 0;
}

static void forget(Bytes *bytes, size_t keep)
{
    bytes->used = 0;
    if (bytes->size > keep) {
        free(bytes->data);
        bytes->data = NULL;
        bytes->size = 0;
    }
}

/* A hash table from hashes to numbers (of entries, places or cells).  The caller compares the keys.  Only the lower
 * half of a hash is kept, because slots are few enough for it and smaller slots fit the cache better. */
typedef struct {
    uint32_t hash, number;
} Slot;

typedef struct {
    Slot *slots;
    size_t mask, used;
} Index;

static int grow(Index *index)
{
    size_t size = index->slots ? 2 * (index->mask + 1) : 1024;
    Slot *slots = malloc(size * sizeof *slots);
    if (!slots)
        return -1;
    for (size_t i = 0; i < size; i++)
        slots[i].number = NONE;
    if (index->slots)
        for (size_t i = 0; i <= index->mask; i++)
            if (index->slots[i].number != NONE) {
                size_t at = index->slots[i].hash & (size - 1);
                while (slots[at].number != NONE)
                    at = (at + 1) & (size - 1);
                slots[at] = index->slots[i];
            }
    free(index->slots);
    index->slots = slots;
    index->mask = size - 1;
    return 0;
}

static int insert(Index *index, uint64_t hash, uint32_t number)
{
    if ((!index->slots || 2 * index->used > index->mask) && grow(index) < 0)
        return -1;
    size_t at = hash & index->mask;
    while (index->slots[at].number != NONE)
        at = (at + 1) & index->mask;
    index->slots[at] = (Slot){(uint32_t)hash, number};
    index->used++;
    return 0;
}

static void clear(Index *index)
{
    free(index->slots);
    *index = (Index){0};
}

/* ---------------------------------------------------------------------------------------------------- hashing */

static inline uint64_t load(const char *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

static inline uint64_t rotate(uint64_t word, int by) { return word << by | word >> (64 - by); }

static inline uint64_t finish(uint64_t word)
{
    word = (word ^ word >> 33) * 0xff51afd7ed558ccdULL;
    word = (word ^ word >> 33) * 0xc4ceb9fe1a85ec53ULL;
    return word ^ word >> 33;
}

/* Returns the hash of a text.  Its four independent chains of multiplications run in parallel.  Callers always check
 * equality on the bytes. */
static uint64_t hash_of(const char *text, size_t length, uint64_t seed)
{
    const uint64_t by = 0x9e3779b97f4a7c15ULL;
    uint64_t a = seed ^ length, b = rotate(seed, 17), c = rotate(seed, 31), d = rotate(seed, 47);
    size_t left = length;
    for (; left >= 32; left -= 32, text += 32) {
        a = rotate((a ^ load(text)) * by, 29);
        b = rotate((b ^ load(text + 8)) * by, 29);
        c = rotate((c ^ load(text + 16)) * by, 29);
        d = rotate((d ^ load(text + 24)) * by, 29);
    }
    for (; left >= 8; left -= 8, text += 8)
        a = rotate((a ^ load(text)) * by, 29);
    if (left) {
        char last[8] = {0};
        memcpy(last, text, left);
        b = rotate((b ^ load(last)) * by, 29);
    }
    return finish(finish(finish(finish(a) ^ b) ^ c) ^ d);
}

/* ----------------------------------------------------------------------------------------------------- pieces */

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "XXH64 is written for little-endian machines here; elsewhere lines are counted in Python"
#endif

static const uint64_t XXH_1 = 0x9e3779b185ebca87ULL, XXH_2 = 0xc2b2ae3d27d4eb4fULL, XXH_3 = 0x165667b19e3779f9ULL,
                      XXH_4 = 0x85ebca77c2b2ae63ULL;

/* State of XXH64 over a stream, with a hash for each `size` bytes.  The specification is in
 * github.com/Cyan4973/xxHash, doc/xxhash_spec.md. */
typedef struct {
    int64_t at; /* place of the next byte; pieces begin at multiples of `size`, itself a multiple of 32 */
    int64_t size;
    uint64_t lanes[4];
    char part[32]; /* the first `at % 32` bytes of a stripe */
    Bytes done;    /* hashes of whole pieces, big-endian like xxhash's `digest` */
} Pieces;

static inline uint64_t xxh_round(uint64_t lane, uint64_t word) { return rotate(lane + word * XXH_2, 31) * XXH_1; }

static void begin_piece(Pieces *pieces)
{
    pieces->lanes[0] = XXH_1 + XXH_2;
    pieces->lanes[1] = XXH_2;
    pieces->lanes[2] = 0;
    pieces->lanes[3] = 0 - XXH_1;
}

static int end_piece(Pieces *pieces)
{
    const uint64_t *lanes = pieces->lanes;
    unsigned char out[8];
    uint64_t hash = rotate(lanes[0], 1) + rotate(lanes[1], 7) + rotate(lanes[2], 12) + rotate(lanes[3], 18);
    for (int i = 0; i < 4; i++)
        hash = (hash ^ xxh_round(0, lanes[i])) * XXH_1 + XXH_4;
    hash += (uint64_t)pieces->size;
    hash = (hash ^ hash >> 33) * XXH_2;
    hash = (hash ^ hash >> 29) * XXH_3;
    hash ^= hash >> 32;
    for (int i = 0; i < 8; i++)
        out[i] = (unsigned char)(hash >> (56 - 8 * i));
    begin_piece(pieces);
    return append(&pieces->done, out, sizeof out);
}

static void hash_stripes(Pieces *pieces, const char *data, size_t count)
{
    uint64_t a = pieces->lanes[0], b = pieces->lanes[1], c = pieces->lanes[2], d = pieces->lanes[3];
    for (; count; count--, data += 32) {
        a = xxh_round(a, load(data));
        b = xxh_round(b, load(data + 8));
        c = xxh_round(c, load(data + 16));
        d = xxh_round(d, load(data + 24));
    }
    pieces->lanes[0] = a, pieces->lanes[1] = b, pieces->lanes[2] = c, pieces->lanes[3] = d;
}

/* Hashes the next bytes. */
static int hash_bytes(Pieces *pieces, const char *data, size_t length)
{
    while (length) {
        size_t held = (size_t)(pieces->at % 32), left = (size_t)(pieces->size - pieces->at % pieces->size);
        size_t taken = length < left ? length : left;
        if (held || taken < 32) {
            taken = taken < 32 - held ? taken : 32 - held;
            memcpy(pieces->part + held, data, taken);
            if (held + taken == 32)
                hash_stripes(pieces, pieces->part, 1);
        }
        else {
            taken -= taken % 32;
            hash_stripes(pieces, data, taken / 32);
        }
        pieces->at += (int64_t)taken;
        data += taken;
        length -= taken;
        if (pieces->at % pieces->size == 0 && end_piece(pieces) < 0)
            return -1;
    }
    return 0;
}

/* ---------------------------------------------------------------------------------------------------- markers */

typedef struct {
    const char *text;
    size_t length;
    int kind; /* RECORD, BLOCK or both */
    uint32_t next; /* the next marker with the same two bytes at the window's end */
} Marker;

/* Wu and Manber's search for many texts at once.  A window with the length of the shortest text slides along the data.
 * Its last two bytes determine how far it may move. */
typedef struct {
    Marker *markers;
    size_t count, window;
    uint8_t shift[1 << 16];
    uint32_t first[1 << 16];
} Search;

static inline size_t pair(const char *at) { return (size_t)(unsigned char)at[0] << 8 | (unsigned char)at[1]; }

static void prepare(Search *search)
{
    search->window = 200;
    for (size_t i = 0; i < search->count; i++)
        if (search->markers[i].length < search->window)
            search->window = search->markers[i].length;
    memset(search->shift, (int)(search->window - 1), sizeof search->shift);
    for (size_t i = 0; i < 1 << 16; i++)
        search->first[i] = NONE;
    for (size_t i = 0; i < search->count; i++) {
        Marker *marker = &search->markers[i];
        for (size_t end = 2; end <= search->window; end++) {
            uint8_t *shift = &search->shift[pair(marker->text + end - 2)];
            if (*shift > search->window - end)
                *shift = (uint8_t)(search->window - end);
        }
        size_t last = pair(marker->text + search->window - 2);
        marker->next = search->first[last];
        search->first[last] = (uint32_t)i;
    }
}

/* Returns the kinds of markers in a text. */
static int kinds_in(const Search *search, const char *text, size_t length)
{
    int found = 0;
    if (!search->count)
        return 0;
    for (size_t end = search->window; end <= length;) {
        size_t last = pair(text + end - 2);
        if (search->shift[last]) {
            end += search->shift[last];
            continue;
        }
        const char *start = text + end - search->window;
        for (uint32_t i = search->first[last]; i != NONE; i = search->markers[i].next) {
            const Marker *marker = &search->markers[i];
            if ((marker->kind & ~found) && marker->length <= (size_t)(text + length - start) &&
                !memcmp(start, marker->text, marker->length))
                found |= marker->kind;
        }
        if (found == (RECORD | BLOCK))
            break;
        end++;
    }
    return found;
}

/* ------------------------------------------------------------------------------------------- prefixes and masks */

static inline int is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
static inline int is_digit(char c) { return c >= '0' && c <= '9'; }
static inline int is_letter(char c) { return ((c | 32) >= 'a' && (c | 32) <= 'z'); }

/* Hexadecimal digits.  Because digits of an address are random, branches on their kind would be mispredicted; a table
 * needs none. */
static const unsigned char HEX[256] = {
    ['0'] = 1, ['1'] = 1, ['2'] = 1, ['3'] = 1, ['4'] = 1, ['5'] = 1, ['6'] = 1, ['7'] = 1, ['8'] = 1, ['9'] = 1, ['a'] = 1,
    ['b'] = 1, ['c'] = 1, ['d'] = 1, ['e'] = 1, ['f'] = 1, ['A'] = 1, ['B'] = 1, ['C'] = 1, ['D'] = 1, ['E'] = 1, ['F'] = 1,
};
static inline int is_hex(char c) { return HEX[(unsigned char)c]; }
static inline int is_upper_hex(char c) { return is_digit(c) || (c >= 'A' && c <= 'F'); }

typedef struct {
    const char *library; /* "[LIB]" */
    size_t library_length;
    const char *bracket; /* the digits of "[n]" */
    size_t bracket_length;
    const char *rest;
} Prefix;

static int is_clock(const char *text)
{
    static const char form[] = "[dddd-dd-dd dd:dd:dd]";
    for (int i = 0; i < CLOCK; i++)
        if (form[i] == 'd' ? !is_digit(text[i]) : text[i] != form[i])
            return 0;
    return 1;
}

/* Returns the end of the "[letters]" that begins at `at`, or NULL. */
static const char *after_word(const char *at, const char *end)
{
    const char *start = at + 1;
    if (at >= end || *at != '[')
        return NULL;
    for (at = start; at < end && is_letter(*at); at++)
        ;
    return at > start && at < end && *at == ']' ? at + 1 : NULL;
}

/* Reads "[date time][LIB][n]" with "[letters]" behind it; "[n]" is optional. */
static int read_prefix(const char *line, const char *end, Prefix *prefix)
{
    if (end - line <= CLOCK || !is_clock(line))
        return 0;
    prefix->library = line + CLOCK;
    const char *at = after_word(prefix->library, end);
    if (!at)
        return 0;
    prefix->library_length = (size_t)(at - prefix->library);
    prefix->bracket = at;
    prefix->bracket_length = 0;
    if (at + 1 < end && *at == '[' && is_digit(at[1])) {
        prefix->bracket = at + 1;
        for (at++; at < end && is_digit(*at); at++)
            ;
        prefix->bracket_length = (size_t)(at - prefix->bracket);
        if (at == end || *at != ']')
            return 0;
        at++;
    }
    prefix->rest = at;
    return after_word(at, end) != NULL;
}

/* Returns the length of the address that begins with "0x" at `at`, or 0.  An address has 5 to 16 digits, not all 0, and
 * no letter behind it. */
static size_t address(const char *at, const char *end)
{
    const char *digit = at + 2;
    int nonzero = 0;
    for (; digit < end && is_hex(*digit); digit++)
        nonzero |= *digit ^ '0';
    size_t digits = (size_t)(digit - at) - 2;
    if (digits < 5 || digits > 16 || !nonzero || (digit < end && (is_digit(*digit) || is_letter(*digit))))
        return 0;
    return digits + 2;
}

/* Appends `text` to `out`, which has room for it, with "0x@" in place of each address. */
static char *mask_addresses(char *out, const char *text, const char *end)
{
    const char *done = text, *lower = text, *upper = text;
    for (const char *at = text;;) {
        if (lower && lower <= at)
            lower = at + 1 < end ? memchr(at + 1, 'x', (size_t)(end - at - 1)) : NULL;
        if (upper && upper <= at)
            upper = at + 1 < end ? memchr(at + 1, 'X', (size_t)(end - at - 1)) : NULL;
        if (!lower && !upper)
            break;
        at = !upper || (lower && lower < upper) ? lower : upper;
        size_t length = at[-1] == '0' && at - 1 >= done ? address(at - 1, end) : 0;
        if (length) {
            memcpy(out, done, (size_t)(at - 1 - done));
            out += at - 1 - done;
            memcpy(out, "0x@", 3);
            out += 3;
            done = at - 1 + length;
            at = done - 1;
        }
    }
    memcpy(out, done, (size_t)(end - done));
    return out + (end - done);
}

/* Does the same for addresses as Windows prints them: "=" and 16 upper-case digits.  NULL becomes "0". */
static char *mask_windows(char *out, const char *text, const char *end)
{
    const char *done = text;
    for (const char *at = text; (at = memchr(at, '=', (size_t)(end - at)));) {
        const char *digit = ++at;
        int null = 1;
        for (; digit < end && digit - at < 16 && is_upper_hex(*digit); digit++)
            null &= *digit == '0';
        if (digit - at < 16 || (digit < end && (is_digit(*digit) || is_letter(*digit))))
            continue;
        memcpy(out, done, (size_t)(at - done));
        out += at - done;
        memcpy(out, "0x@", 3);
        if (null)
            *out = '0';
        out += null ? 1 : 3;
        at = done = digit;
    }
    memcpy(out, done, (size_t)(end - done));
    return out + (end - done);
}

static int has_hex_mark(const char *text, const char *end)
{
    for (int c = 'x';; c = 'X') {
        for (const char *at = text; (at = memchr(at, c, (size_t)(end - at))); at++)
            if (at > text && at[-1] == '0')
                return 1;
        if (c == 'X')
            return 0;
    }
}

/* ---------------------------------------------------------------------------------------------------- counting */

typedef struct {
    uint64_t hash;
    size_t key, key_length; /* places in `texts`; the key of an entry without prefix is its raw line */
    size_t raw, raw_length;
    int64_t offset;
    uint32_t place, cell; /* place and cell of the entry's last line */
    uint8_t kind, event;
} Entry;

typedef struct {
    uint64_t hash;
    size_t text, length, clock; /* `text`: place of clock and bracket digits in `texts` */
} Place;

typedef struct {
    int64_t entry, place, count;
} Cell;

typedef struct {
    PyObject_HEAD
    PyObject *markers;
    Search search;
    Marker *starts; /* texts after the clock in a prefixed record */
    size_t start_count;
    uint64_t seed;
    int busy;
    size_t held; /* result of the last call of the function `held` */
    Bytes entries, places, cells, texts, scratch, events, chunk;
    Index entry_of, place_of, cell_of;
    uint32_t last_place;
    char last[96]; /* the last prefix, which most lines repeat */
    size_t last_length, last_library_length;
    int64_t lines, foreign, blank, splits;
    Pieces pieces;
} Counter;

static inline Entry *entry_at(const Counter *self, uint32_t number) { return (Entry *)self->entries.data + number; }
static inline Place *place_at(const Counter *self, uint32_t number) { return (Place *)self->places.data + number; }
static inline Cell *cell_at(const Counter *self, uint32_t number) { return (Cell *)self->cells.data + number; }

/* Returns the number of a place (clock and bracket). */
static uint32_t place_of(Counter *self, const char *clock, size_t clock_length, const char *bracket, size_t length)
{
    char text[64];
    size_t total = clock_length + length;
    if (total > sizeof text)
        return NONE;
    memcpy(text, clock, clock_length);
    memcpy(text + clock_length, bracket, length);
    uint64_t hash = hash_of(text, total, self->seed ^ clock_length);
    if (self->place_of.slots)
        for (size_t at = hash & self->place_of.mask; self->place_of.slots[at].number != NONE;
             at = (at + 1) & self->place_of.mask) {
            Place *place = place_at(self, self->place_of.slots[at].number);
            if (place->hash == hash && place->length == total && place->clock == clock_length &&
                !memcmp(self->texts.data + place->text, text, total))
                return self->place_of.slots[at].number;
        }
    Place place = {hash, self->texts.used, total, clock_length};
    uint32_t number = (uint32_t)(self->places.used / sizeof place);
    if (append(&self->texts, text, total) < 0 || append(&self->places, &place, sizeof place) < 0 ||
        insert(&self->place_of, hash, number) < 0)
        return NONE;
    return number;
}

static Entry *find_entry(const Counter *self, uint64_t hash, const char *key, size_t length, int kind, uint32_t *number)
{
    if (!self->entry_of.slots)
        return NULL;
    for (size_t at = hash & self->entry_of.mask; self->entry_of.slots[at].number != NONE;
         at = (at + 1) & self->entry_of.mask) {
        if (self->entry_of.slots[at].hash != (uint32_t)hash)
            continue;
        Entry *entry = entry_at(self, self->entry_of.slots[at].number);
        if (entry->key_length == length && entry->kind == kind &&
            !memcmp(self->texts.data + entry->key, key, length)) {
            *number = self->entry_of.slots[at].number;
            return entry;
        }
    }
    return NULL;
}

static Entry *new_entry(Counter *self, Entry entry, const char *key, const char *raw, uint32_t *number)
{
    entry.key = entry.raw = self->texts.used;
    entry.place = entry.cell = NONE;
    if (append(&self->texts, key, entry.key_length) < 0)
        return NULL;
    if (entry.kind & MASKED) {
        entry.raw = self->texts.used;
        if (append(&self->texts, raw, entry.raw_length) < 0)
            return NULL;
    }
    *number = (uint32_t)(self->entries.used / sizeof entry);
    if (append(&self->entries, &entry, sizeof entry) < 0 || insert(&self->entry_of, entry.hash, *number) < 0)
        return NULL;
    return entry_at(self, *number);
}

/* Counts one more line of an entry at a place. */
static int count_line(Counter *self, uint32_t number, uint32_t place)
{
    Entry *entry = entry_at(self, number);
    if (entry->place == place) {
        cell_at(self, entry->cell)->count++;
        return 0;
    }
    uint64_t hash = finish(((uint64_t)number << 32 | place) ^ self->seed);
    entry->place = place;
    if (self->cell_of.slots)
        for (size_t at = hash & self->cell_of.mask; self->cell_of.slots[at].number != NONE;
             at = (at + 1) & self->cell_of.mask) {
            if (self->cell_of.slots[at].hash != (uint32_t)hash)
                continue;
            uint32_t found = self->cell_of.slots[at].number;
            Cell *cell = cell_at(self, found);
            if (cell->entry == number && cell->place == place) {
                cell->count++;
                entry->cell = found;
                return 0;
            }
        }
    Cell cell = {number, place, 1};
    entry->cell = (uint32_t)(self->cells.used / sizeof cell);
    return append(&self->cells, &cell, sizeof cell) < 0 ? -1 : insert(&self->cell_of, hash, entry->cell);
}

static int event(Counter *self, int64_t start, size_t length)
{ /* `start` is a place in the stream, as in all functions here */
    int64_t span[2] = {start, (int64_t)length};
    return append(&self->events, span, sizeof span);
}

static int begins_record(const Counter *self, const char *line, size_t length)
{
    for (size_t i = 0; i < self->start_count; i++)
        if (length >= CLOCK - 1 + self->starts[i].length &&
            !memcmp(line + CLOCK - 1, self->starts[i].text, self->starts[i].length))
            return 1;
    return 0;
}

/* Finds the prefix of a record and the number of its place.  Returns 0 without a prefix, -1 without memory. */
static int find_prefix(Counter *self, const char *line, size_t length, Prefix *prefix, uint32_t *place)
{
    if (self->last_length && length > self->last_length && !memcmp(line, self->last, self->last_length) &&
        after_word(line + self->last_length, line + length)) {
        prefix->library = line + CLOCK;
        prefix->library_length = self->last_library_length;
        prefix->rest = line + self->last_length;
        *place = self->last_place;
        return 1;
    }
    if (!begins_record(self, line, length) || !read_prefix(line, line + length, prefix) ||
        prefix->bracket_length > BRACKET)
        return 0;
    *place = place_of(self, line + 1, CLOCK - 2, prefix->bracket, prefix->bracket_length);
    if (*place == NONE)
        return -1;
    self->last_length = 0;
    if ((size_t)(prefix->rest - line) <= sizeof self->last) {
        self->last_length = (size_t)(prefix->rest - line);
        self->last_library_length = prefix->library_length;
        self->last_place = *place;
        memcpy(self->last, line, self->last_length);
    }
    return 1;
}

/* Returns where the last record begins inside a line, or 0 if none does or its beginning is not certain.  The line has
 * a marker of a record format, but no marker of a block format.  The beginning is not certain if the record's prefix is
 * not whole, or if another record may begin behind it or right before it. */
static size_t record_inside(const Counter *self, const char *line, size_t length)
{
    for (size_t at = length; at-- > CLOCK;) {
        const char *record = line + at - (CLOCK - 1);
        size_t left = length - (size_t)(record - line);
        Prefix prefix;
        if (line[at] != ']' || !begins_record(self, record, left))
            continue;
        if (record[-1] == ']' || !read_prefix(record, line + length, &prefix) || prefix.bracket_length > BRACKET ||
            kinds_in(&self->search, record + CLOCK, left - CLOCK) & RECORD)
            return 0;
        return (size_t)(record - line);
    }
    return 0;
}

static int scan_part(Counter *self, const char *line, size_t length, int64_t start, int torn);

/* Returns the length of blanks and colours (ESC [ digits ; : m or K) at the beginning of a text. */
static size_t unseen(const char *text, size_t length)
{
    size_t at = 0;
    while (at < length) {
        size_t end = at + 2;
        if (is_space(text[at])) {
            at++;
            continue;
        }
        if (text[at] != 0x1b || end >= length || text[at + 1] != '[')
            break;
        while (end < length && text[end] >= '0' && text[end] <= ';') /* digits, ':' and ';' */
            end++;
        if (end == length || (text[end] != 'm' && text[end] != 'K'))
            break;
        at = end + 1;
    }
    return at;
}

/* Counts a line inside which a record begins at `at`.  If text stands before `at`, it is counted as torn. */
static int scan_cut(Counter *self, const char *line, size_t length, int64_t start, size_t at)
{
    size_t blank = unseen(line, at);
    self->splits += blank < at;
    if (blank < at && scan_part(self, line, at, start, TORN) < 0)
        return -1;
    return scan_part(self, line + at, length - at, start + (int64_t)at, 0);
}

/* Counts a line (or the torn part of a line) if it has a prefix.  Returns 1 with a prefix, 0 without, -1 without
 * memory. */
static int scan_prefixed(Counter *self, const char *line, size_t length, int64_t start, int torn)
{
    Prefix prefix;
    const char *end = line + length;
    uint32_t number, place;
    int found = find_prefix(self, line, length, &prefix, &place), kind = MASKED | torn;
    if (found <= 0)
        return found;
    while (end > prefix.rest && is_space(end[-1]))
        end--;
    self->scratch.used = 0;
    /* a masked text is not longer than the original */
    char *key = room(&self->scratch, length + 1), *at = key;
    if (!key)
        return -1;
    memcpy(at, prefix.library, prefix.library_length);
    at += prefix.library_length;
    at = has_hex_mark(prefix.rest, end) ? mask_addresses(at, prefix.rest, end) : mask_windows(at, prefix.rest, end);
    size_t key_length = (size_t)(at - key);
    uint64_t hash = hash_of(key, key_length, self->seed ^ (uint64_t)kind);
    Entry *entry = find_entry(self, hash, key, key_length, kind, &number);
    if (!entry) {
        Entry made = {.hash = hash, .key_length = key_length, .raw_length = length, .offset = start, .kind = (uint8_t)kind};
        made.event = (kinds_in(&self->search, line, length) & BLOCK) != 0;
        size_t inside = torn || made.event ? 0 : record_inside(self, line, length);
        if (inside)
            return scan_cut(self, line, length, start, inside) < 0 ? -1 : 1;
        entry = new_entry(self, made, key, line, &number);
    }
    if (!entry || (entry->event && event(self, start, length) < 0) || count_line(self, number, place) < 0)
        return -1;
    return 1;
}

/* Counts a line or a part of a line.  `torn` is 0 or TORN. */
static int scan_part(Counter *self, const char *line, size_t length, int64_t start, int torn)
{
    if (*line == '[') {
        int done = scan_prefixed(self, line, length, start, torn);
        if (done)
            return done < 0 ? -1 : 0;
    }
    uint64_t hash = hash_of(line, length, self->seed ^ (uint64_t)torn);
    uint32_t number;
    Entry *entry = find_entry(self, hash, line, length, torn, &number);
    if (!entry) {
        int kinds = kinds_in(&self->search, line, length);
        if (!(kinds & RECORD)) {
            if (kinds & BLOCK)
                return event(self, start, length);
            while (length && is_space(*line))
                line++, length--;
            self->foreign += length != 0;
            self->blank += length == 0;
            return 0;
        }
        size_t inside = torn || kinds & BLOCK ? 0 : record_inside(self, line, length);
        if (inside)
            return scan_cut(self, line, length, start, inside);
        Entry made = {.hash = hash, .key_length = length, .raw_length = length, .offset = start, .kind = (uint8_t)torn};
        made.event = (kinds & BLOCK) != 0;
        entry = new_entry(self, made, line, line, &number);
        if (!entry)
            return -1;
    }
    if (entry->event && event(self, start, length) < 0)
        return -1;
    uint32_t nowhere = entry->place != NONE ? entry->place : place_of(self, "", 0, "", 0);
    return nowhere == NONE ? -1 : count_line(self, number, nowhere);
}

/* Estimates the bytes that `take` would return.  A cell becomes a row, and a text becomes objects. */
static inline size_t held(const Counter *self) { return self->entries.used + self->cells.used / 2 + self->texts.used; }

static int scan(Counter *self, const char *data, size_t length, int64_t offset)
{
    const char *end = data + length;
    for (const char *line = data; line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        if (!stop)
            stop = end;
        self->lines++;
        if (stop == line)
            self->blank++;
        else if (scan_part(self, line, (size_t)(stop - line), offset + (line - data), 0) < 0)
            return -1;
        line = stop + 1;
    }
    return 0;
}

#ifndef _WIN32
/* Appends up to `want` bytes from place `at` of a file to `chunk`.  Hashes the bytes that were not read before, in
 * pieces that end by `hash_to`.  Returns the number of bytes, or a negative errno (EIO if the file ends there). */
static ssize_t read_chunk(Counter *self, int file, int64_t at, int64_t want, int64_t hash_to)
{
    Pieces *pieces = &self->pieces;
    size_t size = (size_t)(want < CHUNK ? want : CHUNK);
    char *data = room(&self->chunk, size);
    ssize_t got;
    if (!data)
        return -ENOMEM;
    while ((got = pread(file, data, size, at)) < 0 && errno == EINTR)
        ;
    if (got <= 0)
        return got ? -errno : -EIO;
    int64_t from = pieces->at > at ? pieces->at : at, to = at + got < hash_to ? at + got : hash_to;
    if (from < to && hash_bytes(pieces, data + (from - at), (size_t)(to - from)) < 0)
        return -ENOMEM;
    return got;
}

/* Scans the lines of a file from `*start` to `end`, or until the result exceeds `limit` bytes.  Lines begin at both
 * places.  `*start` becomes the place where the scan stopped.  Hashes all bytes that are not hashed yet, including
 * bytes before `*start`, up to the last piece that ends by `end`.  Returns 0 or an errno. */
static int scan_file(Counter *self, int file, int64_t *start, int64_t end, size_t limit)
{
    Bytes *chunk = &self->chunk; /* bytes that were read but not scanned: a part of a line */
    int64_t read_to = *start, hash_to = end - end % self->pieces.size;
    ssize_t got;
    chunk->used = 0;
    while (self->pieces.at < *start && self->pieces.at < hash_to)
        if ((got = read_chunk(self, file, self->pieces.at, *start - self->pieces.at, hash_to)) < 0)
            return (int)-got;
    while (*start < end && held(self) + EVENT * self->events.used <= limit) {
        if ((got = read_chunk(self, file, read_to, end - read_to, hash_to)) < 0)
            return (int)-got;
        size_t rest = chunk->used, whole = rest + (size_t)got; /* part of a line; end of whole lines */
        chunk->used = whole;
        read_to += got;
        if (read_to < end) {
            while (whole > rest && chunk->data[whole - 1] != '\n')
                whole--;
            whole = whole > rest ? whole : 0;
        }
        if (scan(self, chunk->data, whole, *start) < 0)
            return ENOMEM;
        *start += (int64_t)whole;
        chunk->used -= whole;
        memmove(chunk->data, chunk->data + whole, chunk->used);
    }
    return 0;
}
#endif

/* ------------------------------------------------------------------------------------------------ Python's side */

static int begin(Counter *self)
{
    if (self->busy) {
        PyErr_SetString(PyExc_RuntimeError, "this counter is counting in another thread");
        return -1;
    }
    self->busy = 1;
    self->lines = self->foreign = self->blank = self->splits = 0;
    self->events.used = 0;
    return 0;
}

static PyObject *end(Counter *self, int error, long long stop)
{
    self->busy = 0;
    self->held = held(self);
    if (error == ENOMEM)
        return PyErr_NoMemory();
    if (error) {
        errno = error;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    PyObject *out = Py_BuildValue("LLLLy#L", self->lines, self->foreign, self->blank, self->splits,
                                  self->events.data ? self->events.data : "", (Py_ssize_t)self->events.used, stop);
    forget(&self->events, 1 << 20);
    return out;
}

static PyObject *Counter_count(Counter *self, PyObject *args)
{
    PyObject *data;
    long long offset;
    if (!PyArg_ParseTuple(args, "SL", &data, &offset) || begin(self) < 0)
        return NULL;
    int failed;
    Py_BEGIN_ALLOW_THREADS
    failed = scan(self, PyBytes_AS_STRING(data), (size_t)PyBytes_GET_SIZE(data), offset);
    Py_END_ALLOW_THREADS
    return end(self, failed ? ENOMEM : 0, offset + PyBytes_GET_SIZE(data));
}

#ifndef _WIN32
static PyObject *Counter_count_file(Counter *self, PyObject *args)
{
    int file;
    long long start, stop, hashed, piece;
    Py_ssize_t limit;
    if (!PyArg_ParseTuple(args, "iLLnLL", &file, &start, &stop, &limit, &hashed, &piece))
        return NULL;
    if (piece <= 0 || piece % 32 || (hashed < 0 ? piece != self->pieces.size : hashed % piece)) {
        PyErr_SetString(PyExc_ValueError, "pieces are of a multiple of 32 bytes, and begin at multiples of that");
        return NULL;
    }
    if (begin(self) < 0)
        return NULL;
    if (hashed >= 0) {
        self->pieces.at = hashed;
        self->pieces.size = piece;
        self->pieces.done.used = 0;
        begin_piece(&self->pieces);
    }
    int error;
    int64_t at = start;
    Py_BEGIN_ALLOW_THREADS
    error = scan_file(self, file, &at, stop, (size_t)limit);
    Py_END_ALLOW_THREADS
    forget(&self->chunk, 2 * CHUNK);
    return end(self, error, at);
}
#endif

#ifndef _WIN32
static PyObject *Counter_hashes(Counter *self, PyObject *Py_UNUSED(ignored))
{
    if (self->busy) {
        PyErr_SetString(PyExc_RuntimeError, "this counter is counting in another thread");
        return NULL;
    }
    PyObject *out = PyBytes_FromStringAndSize(self->pieces.done.data, (Py_ssize_t)self->pieces.done.used);
    self->pieces.done.used = 0;
    return out;
}
#endif

static PyObject *entry_tuple(const Counter *self, const Entry *entry)
{
    const char *texts = self->texts.data ? self->texts.data : "";
    PyObject *raw = PyBytes_FromStringAndSize(texts + entry->raw, (Py_ssize_t)entry->raw_length);
    PyObject *key = NULL;
    if (raw && entry->kind & MASKED)
        key = PyBytes_FromStringAndSize(texts + entry->key, (Py_ssize_t)entry->key_length);
    else if (raw)
        key = Py_NewRef(Py_None);
    if (!key) {
        Py_XDECREF(raw);
        return NULL;
    }
    return Py_BuildValue("NNLOO", raw, key, (long long)entry->offset, entry->event ? Py_True : Py_False,
                         entry->kind & TORN ? Py_True : Py_False);
}

static PyObject *list_of(const Counter *self, size_t count, int places)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++) {
        PyObject *item;
        if (places) {
            Place *place = place_at(self, (uint32_t)i);
            const char *text = self->texts.data + place->text;
            item = Py_BuildValue("y#y#", text, (Py_ssize_t)place->clock, text + place->clock,
                                 (Py_ssize_t)(place->length - place->clock));
        }
        else
            item = entry_tuple(self, entry_at(self, (uint32_t)i));
        if (!item)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, item);
    }
    return list;
}

static void reset(Counter *self, size_t keep)
{
    forget(&self->entries, keep);
    forget(&self->places, keep);
    forget(&self->cells, keep);
    forget(&self->texts, keep);
    forget(&self->scratch, keep);
    clear(&self->entry_of);
    clear(&self->place_of);
    clear(&self->cell_of);
    self->last_length = 0;
    self->held = 0;
}

static PyObject *Counter_take(Counter *self, PyObject *Py_UNUSED(ignored))
{
    if (self->busy) {
        PyErr_SetString(PyExc_RuntimeError, "this counter is counting in another thread");
        return NULL;
    }
    PyObject *entries = list_of(self, self->entries.used / sizeof(Entry), 0);
    PyObject *places = entries ? list_of(self, self->places.used / sizeof(Place), 1) : NULL;
    if (!places) {
        Py_XDECREF(entries);
        return NULL;
    }
    PyObject *out = Py_BuildValue("NNy#", entries, places, self->cells.data ? self->cells.data : "",
                                  (Py_ssize_t)self->cells.used);
    reset(self, 1 << 20);
    return out;
}

static PyObject *Counter_held(Counter *self, void *Py_UNUSED(closure))
{
    return PyLong_FromSize_t(self->held);
}

static int add_markers(Counter *self, PyObject *texts, int kind)
{
    Py_ssize_t count = PyTuple_GET_SIZE(texts);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *text = PyTuple_GET_ITEM(texts, i);
        if (!PyBytes_Check(text) || PyBytes_GET_SIZE(text) < 2) {
            PyErr_SetString(PyExc_ValueError, "a marker is two or more bytes");
            return -1;
        }
        Marker marker = {PyBytes_AS_STRING(text), (size_t)PyBytes_GET_SIZE(text), kind, NONE};
        if (kind)
            self->search.markers[self->search.count++] = marker;
        else
            self->starts[self->start_count++] = marker;
    }
    return 0;
}

static PyObject *Counter_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *records, *blocks, *starts;
    if (!PyArg_ParseTuple(args, "O!O!O!", &PyTuple_Type, &records, &PyTuple_Type, &blocks, &PyTuple_Type, &starts))
        return NULL;
    Counter *self = (Counter *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    self->markers = Py_NewRef(args); /* the markers point into its texts, which must not be freed */
    PyObject *salt = PyBytes_FromString("logparse");
    self->seed = salt ? (uint64_t)PyObject_Hash(salt) : 0; /* differs from process to process */
    Py_XDECREF(salt);
    size_t count = (size_t)(PyTuple_GET_SIZE(records) + PyTuple_GET_SIZE(blocks));
    self->search.markers = calloc(count + 1, sizeof(Marker));
    self->starts = calloc((size_t)PyTuple_GET_SIZE(starts) + 1, sizeof(Marker));
    if (!self->search.markers || !self->starts)
        PyErr_NoMemory();
    if (PyErr_Occurred() || add_markers(self, records, RECORD) < 0 || add_markers(self, blocks, BLOCK) < 0 ||
        add_markers(self, starts, 0) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    prepare(&self->search);
    return (PyObject *)self;
}

static void Counter_dealloc(Counter *self)
{
    PyTypeObject *type = Py_TYPE(self);
    reset(self, 0);
    forget(&self->events, 0);
    forget(&self->chunk, 0);
    forget(&self->pieces.done, 0);
    free(self->search.markers);
    free(self->starts);
    Py_XDECREF(self->markers);
    type->tp_free((PyObject *)self);
}

static PyMethodDef methods[] = {
    {"count", (PyCFunction)(void (*)(void))Counter_count, METH_VARARGS,
     "count(data, offset) -> (lines, foreign, blank, splits, events, stop): whole lines that stand at `offset`."},
#ifndef _WIN32
    {"count_file", (PyCFunction)(void (*)(void))Counter_count_file, METH_VARARGS,
     "count_file(fd, start, end, limit, hashed, piece) -> the same for lines of a file, until more than `limit` is held."},
    {"hashes", (PyCFunction)(void (*)(void))Counter_hashes, METH_NOARGS, "hashes() -> of the pieces since the last call."},
#endif
    {"take", (PyCFunction)(void (*)(void))Counter_take, METH_NOARGS, "take() -> (entries, places, cells)."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef properties[] = {
    {"held", (getter)Counter_held, NULL, "How much is held until `take`, in bytes of text.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject CounterType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "logparse.ingest._lines.Counter",
    .tp_basicsize = sizeof(Counter),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Counter(record_markers, block_markers, starts): counts lines by their distinct text.",
    .tp_new = Counter_new,
    .tp_dealloc = (destructor)Counter_dealloc,
    .tp_methods = methods,
    .tp_getset = properties,
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "_lines", .m_size = -1};

PyMODINIT_FUNC PyInit__lines(void)
{
    PyObject *made = NULL;
#ifdef __GLIBC__
    /* Blocks of a megabyte are allocated and freed often.  By default, the kernel would map, zero and unmap each. */
    mallopt(M_MMAP_THRESHOLD, 8 << 20);
    mallopt(M_TRIM_THRESHOLD, 32 << 20);
#endif
    if (PyType_Ready(&CounterType) < 0 || !(made = PyModule_Create(&module)))
        return NULL;
    Py_INCREF(&CounterType);
    if (PyModule_AddObject(made, "Counter", (PyObject *)&CounterType) < 0) {
        Py_DECREF(&CounterType);
        Py_CLEAR(made);
    }
    if (made && PyModule_AddIntConstant(made, "VERSION", VERSION) < 0)
        Py_CLEAR(made);
    return made;
}
