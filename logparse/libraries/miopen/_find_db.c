/* Find the records of a find-db, and read the records of the usual form.
 *
 * `index` goes once over whole lines and gives columns.  They hold the position of every line.  For a record of the
 * usual form they also hold the numbers in its key and items.  Texts (solvers, algorithms, tails of keys) are places in
 * lists of distinct texts.  `index` does not read the other lines: Python reads them one by one.
 *
 * `texts` writes the texts by which the store names problems.  Python judges the meaning of a tail.
 *
 * A zero byte stands behind the data of a bytes object.  Every loop over characters stops at it, so no loop runs beyond
 * the data.  The functions run without the interpreter's lock.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <float.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#define VERSION 6 /* Python compares it: count up with every change of arguments or results */
#define SIZES 12  /* n c d h w k filter_d filter_h filter_w out_d out_h out_w */
#define PIECES 3  /* pieces of a problem's text around and between its sizes */
#define NONE UINT32_MAX

enum { N, C, D, H, W, K, FILTER_D, FILTER_H, FILTER_W, OUT_D, OUT_H, OUT_W };

static uint64_t seed; /* differs from process to process */

static inline int is_digit(char c) { return (unsigned char)(c - '0') < 10; }

/* Tell whether a character may be part of a name or a value: printable, and no delimiter. */
static inline int is_plain(char c) { return c >= ' ' && c < 127 && c != ':' && c != ',' && c != ';' && c != '='; }

/* ---------------------------------------------------------------------------------------------- distinct texts */

typedef struct {
    const char *text;
    size_t length;
    uint64_t hash;
    int32_t last; /* a solver's last line, a key's first line */
    int32_t usual; /* a solver's last algorithm, a tail's count of dimensions */
} Word;

typedef struct {
    Word *words;
    uint32_t *slots;
    size_t used, room, mask;
} Words;

static uint64_t hash_of(const char *text, size_t length, uint64_t hash)
{
    const uint64_t by = 0x9e3779b97f4a7c15ULL;
    uint64_t word;
    hash ^= length;
    for (; length >= 8; length -= 8, text += 8) {
        memcpy(&word, text, 8);
        hash = (hash ^ word) * by;
        hash ^= hash >> 29;
    }
    word = 0;
    memcpy(&word, text, length);
    hash = (hash ^ word) * by;
    return hash ^ hash >> 32;
}

static int grow(Words *words)
{
    size_t size = words->slots ? 2 * (words->mask + 1) : 256;
    uint32_t *slots = malloc(size * sizeof *slots);
    Word *more = realloc(words->words, size / 2 * sizeof *more);
    if (more)
        words->words = more;
    if (!slots || !more) {
        free(slots);
        return -1;
    }
    memset(slots, 0xff, size * sizeof *slots);
    for (size_t i = 0; i < words->used; i++) {
        size_t at = more[i].hash & (size - 1);
        while (slots[at] != NONE)
            at = (at + 1) & (size - 1);
        slots[at] = (uint32_t)i;
    }
    free(words->slots);
    words->slots = slots;
    words->mask = size - 1;
    words->room = size / 2;
    return 0;
}

/* Return the word of a text, or NULL if memory runs out.  A new word has `last` = -1.
 * Pointers to words that earlier calls returned may be invalid afterwards. */
static Word *word_of(Words *words, const char *text, size_t length, uint64_t salt)
{
    uint64_t hash = hash_of(text, length, seed ^ salt);
    if (words->used == words->room && grow(words) < 0)
        return NULL;
    size_t at = hash & words->mask;
    for (; words->slots[at] != NONE; at = (at + 1) & words->mask) {
        Word *word = &words->words[words->slots[at]];
        if (word->hash == hash && word->length == length && !memcmp(word->text, text, length))
            return word;
    }
    words->slots[at] = (uint32_t)words->used;
    Word *word = &words->words[words->used++];
    *word = (Word){text, length, hash, -1, -1};
    return word;
}

static void clear(Words *words)
{
    free(words->words);
    free(words->slots);
    *words = (Words){0};
}

/* ------------------------------------------------------------------------------------------------------- reading */

enum { DONE, ODD, NO_MEMORY };

/* Read a number of a key: up to nine digits without leading zeros.  Return the text behind it, or NULL. */
static inline const char *read_size(const char *at, int64_t *out)
{
    const char *start = at;
    uint32_t value = 0;
    for (; is_digit(*at); at++)
        value = 10 * value + (uint32_t)(*at - '0');
    *out = value;
    return at == start || at - start > 9 || (*start == '0' && at - start > 1) ? NULL : at;
}

static const double TENS[] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                              1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};

#define MS_TO_US 3 /* power of ten */

/* Read a time above 0 in milliseconds, and return it in microseconds.
 * Return 0 unless a single operation on exact numbers gives the nearest double (W. D. Clinger, How to read floating
 * point numbers accurately, 1990).  `*place` moves behind the text that was read. */
static double read_time(const char **place)
{
    const char *at = *place, *start = at;
    uint64_t value = 0;
    int power = MS_TO_US;
    for (; is_digit(*at); at++)
        value = 10 * value + (uint64_t)(*at - '0');
    int whole = at > start;
    if (*at == '.') {
        const char *point = ++at;
        for (; is_digit(*at); at++)
            value = 10 * value + (uint64_t)(*at - '0');
        power -= at - point > 18 ? 18 : (int)(at - point);
    }
    int exact = whole && at - start <= 18 && value <= (uint64_t)1 << 53;
    *place = at;
    if (FLT_EVAL_METHOD != 0 || !exact)
        return 0;
    return power < 0 ? (double)value / TENS[-power] : (double)value * TENS[power];
}

/* Return the end of a name: a delimiter, a blank, or a character that no name has. */
static inline const char *name_end(const char *at)
{
    while (is_plain(*at) && *at != ' ')
        at++;
    return at;
}

typedef struct {
    const char *data, *end;
    int whole; /* the data is a whole file: repeated keys are found */
    size_t lines, items;
    int64_t *start;                         /* per line, and where a next line would begin */
    int32_t *equals, *first, *tail, *begin; /* per line; `begin`: first item, and one more */
    int64_t *hash;                          /* per line: hash of its key */
    int64_t *sizes;                         /* SIZES columns, per line */
    int32_t *solver, *algorithm;            /* per item */
    int64_t *at, *workspace;
    double *time_us;
    Words keys, tails, solvers, algorithms;
} Index;

#define MOST_FLOPS 4611686018427387904.0 /* half of 2^63: flops are twice a product of sizes */

/* Read the key "c-h-w-3x3-k-h-w-n-tail".  A 3D key has one more size per tensor and for the filter. */
static int index_key(Index *index, const char *at, const char *stop, size_t line)
{
    static const char forms[2][SIZES + 1] = {"---x-----", "----xx------"};
    int64_t size[SIZES];
    int wide = 2;
    double product = 1;
    for (size_t i = 0; i < (wide == 2 ? 9U : 12U); i++) {
        at = read_size(at, &size[i]);
        if (!at)
            return ODD;
        if (i == 3 && *at == '-')
            wide = 3;
        if (*at++ != forms[wide - 2][i])
            return ODD;
        product *= size[i] ? (double)size[i] : 1;
    }
    if (product >= MOST_FLOPS || at >= stop)
        return ODD;
    const char *dash = stop;
    for (const char *c = at; c < stop; c++) {
        if (!is_plain(*c))
            return ODD;
        dash = *c == '-' ? c : dash;
    }
    Word *tail = word_of(&index->tails, at, (size_t)(stop - at), (uint64_t)wide);
    if (!tail)
        return NO_MEMORY;
    tail->usual = wide;
    index->tail[line] = (int32_t)(tail - index->tails.words);
    /* The first tensor is the input in forward keys, else the output.  The filter stands between the tensors. */
    int first = stop - dash > 1 && dash[1] == 'F';
    const int64_t *one = size, *filter = size + 1 + wide, *two = filter + wide;
    const int64_t *in = first ? one : two, *out = first ? two : one;
    int64_t *to = index->sizes + line;
    const size_t step = index->lines;
    to[N * step] = two[1 + wide];
    to[C * step] = in[0];
    to[K * step] = out[0];
    to[D * step] = to[FILTER_D * step] = to[OUT_D * step] = 1;
    for (int i = 0; i < wide; i++) {
        to[(size_t)(W + 1 - wide + i) * step] = in[1 + i];
        to[(size_t)(FILTER_W + 1 - wide + i) * step] = filter[i];
        to[(size_t)(OUT_W + 1 - wide + i) * step] = out[1 + i];
    }
    return DONE;
}

static inline int is_word(char c)
{
    return is_digit(c) || (unsigned char)((c | 32) - 'a') < 26 || c == '_';
}

/* Read "solver:ms,workspace,algorithm".  The time is a written 0, or above 0 and read exactly. */
static int index_item(Index *index, const char **place, size_t line, size_t item)
{
    const char *at = *place, *stop = name_end(at), *start;
    if (stop == at || *stop != ':')
        return ODD;
    Word *solver = word_of(&index->solvers, at, (size_t)(stop - at), 0);
    if (!solver)
        return NO_MEMORY;
    if (solver->last == (int32_t)line)
        return ODD;
    solver->last = (int32_t)line;
    index->solver[item] = (int32_t)(solver - index->solvers.words);
    for (start = at = stop + 1; is_digit(*at);)
        at++;
    if (at == start)
        return ODD;
    if (*at == '.') {
        start = ++at;
        while (is_digit(*at))
            at++;
    }
    if (at == start || *at != ',')
        return ODD;
    start = stop + 1;
    index->time_us[item] = read_time(&start);
    if (!(index->time_us[item] > 0) && (stop[1] != '0' || stop[2] != ','))
        return ODD;
    int64_t workspace = 0;
    for (start = ++at; is_digit(*at) && at - start < 12; at++)
        workspace = 10 * workspace + (*at - '0');
    if (at == start || at - start > 11 || *at != ',')
        return ODD;
    index->workspace[item] = workspace;
    const Word *algorithm = index->algorithms.words + (solver->usual < 0 ? 0 : solver->usual);
    start = ++at;
    if (solver->usual >= 0 && !strncmp(start, algorithm->text, algorithm->length) && !is_word(start[algorithm->length]))
        at += algorithm->length;
    else {
        while (is_word(*at))
            at++;
        if (at == start)
            return ODD;
        algorithm = word_of(&index->algorithms, start, (size_t)(at - start), 0);
        if (!algorithm)
            return NO_MEMORY;
        solver->usual = (int32_t)(algorithm - index->algorithms.words);
    }
    index->algorithm[item] = solver->usual;
    index->at[item] = *place - index->data;
    *place = at;
    return DONE;
}

/* Read a line: the length of its key, and its items if all of the line has the usual form. */
static int index_line(Index *index, const char *start, const char *stop, size_t line)
{
    size_t item = (size_t)index->begin[line];
    const char *equals = memchr(start, '=', (size_t)(stop - start)), *at;
    index->begin[line + 1] = (int32_t)item;
    index->first[line] = (int32_t)line;
    index->tail[line] = -1;
    index->equals[line] = equals ? (int32_t)(equals - start) : -1;
    index->hash[line] = 0;
    if (!equals || equals == start)
        return DONE;
    if (!index->whole)
        index->hash[line] = (int64_t)hash_of(start, (size_t)(equals - start), seed);
    else {
        Word *key = word_of(&index->keys, start, (size_t)(equals - start), 0);
        if (!key)
            return NO_MEMORY;
        index->hash[line] = (int64_t)key->hash;
        if (key->last >= 0) {
            index->first[line] = key->last;
            return DONE;
        }
        key->last = (int32_t)line;
    }
    int state = index_key(index, start, equals, line);
    for (at = equals + 1; state == DONE; at++, item++) {
        state = index_item(index, &at, line, item);
        if (state == DONE && at == stop) {
            index->begin[line + 1] = (int32_t)item + 1;
            return DONE;
        }
        if (state == DONE && *at != ';')
            state = ODD;
    }
    index->tail[line] = -1;
    return state == ODD ? DONE : state;
}

static int index_lines(Index *index)
{
    const char *at = index->data;
    index->begin[0] = 0;
    for (size_t line = 0; line < index->lines; line++) {
        const char *stop = memchr(at, '\n', (size_t)(index->end - at));
        stop = stop ? stop : index->end;
        index->start[line] = at - index->data;
        if (index_line(index, at, stop, line) != DONE)
            return NO_MEMORY;
        at = stop + 1;
    }
    index->start[index->lines] = at - index->data;
    return DONE;
}

static size_t count(const char *data, size_t length, char wanted)
{
    size_t total = 0;
    while (length) {
        size_t part = length < 255 ? length : 255;
        uint8_t found = 0;
        for (size_t i = 0; i < part; i++)
            found = (uint8_t)(found + (data[i] == wanted));
        total += found;
        data += part;
        length -= part;
    }
    return total;
}

/* ------------------------------------------------------------------------------------------------ Python's side */

static PyObject *column(size_t count, size_t size, void *data)
{
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(count * size));
    if (bytes)
        *(void **)data = PyBytes_AS_STRING(bytes);
    return bytes;
}

static PyObject *names_of(const Words *words)
{
    PyObject *list = PyList_New((Py_ssize_t)words->used);
    for (size_t i = 0; list && i < words->used; i++) {
        PyObject *text = PyUnicode_DecodeASCII(words->words[i].text, (Py_ssize_t)words->words[i].length, NULL);
        if (!text)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, text);
    }
    return list;
}

static PyObject *tails_of(const Words *words)
{
    PyObject *list = PyList_New((Py_ssize_t)words->used);
    for (size_t i = 0; list && i < words->used; i++) {
        const Word *word = &words->words[i];
        PyObject *pair = Py_BuildValue("is#", (int)word->usual, word->text, (Py_ssize_t)word->length);
        if (!pair)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, pair);
    }
    return list;
}

enum { START, EQUALS, FIRST, TAIL, BEGIN, HASH, KEY_SIZES, SOLVER, ALGORITHM, AT, TIMES, WORKSPACES, COLUMNS };

/* Return the columns.  Columns of items are cut to the count of items of the usual form. */
static PyObject *index_result(Index *index, PyObject **columns)
{
    static const size_t size[] = {sizeof(int32_t), sizeof(int32_t), sizeof(int64_t), sizeof(double), sizeof(int64_t)};
    for (size_t i = SOLVER; i < COLUMNS; i++)
        if (_PyBytes_Resize(&columns[i], (Py_ssize_t)((size_t)index->begin[index->lines] * size[i - SOLVER])) < 0)
            return NULL;
    PyObject *solvers = names_of(&index->solvers), *algorithms = names_of(&index->algorithms);
    PyObject *tails = tails_of(&index->tails);
    if (!solvers || !algorithms || !tails) {
        Py_XDECREF(solvers);
        Py_XDECREF(algorithms);
        Py_XDECREF(tails);
        return NULL;
    }
    return Py_BuildValue("OOOOOOOOOOOONNN", columns[START], columns[EQUALS], columns[FIRST], columns[TAIL],
                         columns[BEGIN], columns[HASH], columns[KEY_SIZES], columns[SOLVER], columns[ALGORITHM],
                         columns[AT], columns[TIMES], columns[WORKSPACES], solvers, algorithms, tails);
}

static PyObject *index_file(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *file, *result = NULL, *columns[COLUMNS] = {NULL};
    Index index = {0};
    int state = DONE;
    if (!PyArg_ParseTuple(args, "Sp", &file, &index.whole)) /* bytes: a zero stands behind the data */
        return NULL;
    if (PyBytes_GET_SIZE(file) >= INT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "a file of more than 2 GiB");
        return NULL;
    }
    index.data = PyBytes_AS_STRING(file);
    index.end = index.data + PyBytes_GET_SIZE(file);
    Py_BEGIN_ALLOW_THREADS
    index.lines = count(index.data, (size_t)(index.end - index.data), '\n');
    index.lines += index.end > index.data && index.end[-1] != '\n';
    index.items = index.lines + count(index.data, (size_t)(index.end - index.data), ';');
    Py_END_ALLOW_THREADS
    columns[START] = column(index.lines + 1, sizeof *index.start, &index.start);
    columns[EQUALS] = column(index.lines, sizeof *index.equals, &index.equals);
    columns[FIRST] = column(index.lines, sizeof *index.first, &index.first);
    columns[TAIL] = column(index.lines, sizeof *index.tail, &index.tail);
    columns[BEGIN] = column(index.lines + 1, sizeof *index.begin, &index.begin);
    columns[HASH] = column(index.lines, sizeof *index.hash, &index.hash);
    columns[KEY_SIZES] = column(SIZES * index.lines, sizeof *index.sizes, &index.sizes);
    columns[SOLVER] = column(index.items, sizeof *index.solver, &index.solver);
    columns[ALGORITHM] = column(index.items, sizeof *index.algorithm, &index.algorithm);
    columns[AT] = column(index.items, sizeof *index.at, &index.at);
    columns[TIMES] = column(index.items, sizeof *index.time_us, &index.time_us);
    columns[WORKSPACES] = column(index.items, sizeof *index.workspace, &index.workspace);
    for (size_t i = 0; i < COLUMNS; i++)
        state = columns[i] ? state : NO_MEMORY;
    if (state == DONE) {
        Py_BEGIN_ALLOW_THREADS
        state = index_lines(&index);
        Py_END_ALLOW_THREADS
        if (state == NO_MEMORY)
            PyErr_NoMemory();
        else
            result = index_result(&index, columns);
    }
    for (size_t i = 0; i < COLUMNS; i++)
        Py_XDECREF(columns[i]);
    clear(&index.keys);
    clear(&index.tails);
    clear(&index.solvers);
    clear(&index.algorithms);
    return result;
}

/* --------------------------------------------------------------------------------------------------- the texts */

typedef struct {
    const char *text;
    size_t length;
} Piece;

#define DIGITS 9
#define STEP 16 /* bytes that are copied for a number of any length */

typedef struct {
    char text[STEP];
    size_t length;
} Number;

static inline void print_number(Number *number, uint32_t value)
{
    char digits[DIGITS + 1], *at = digits + sizeof digits;
    do
        *--at = (char)('0' + value % 10);
    while (value /= 10);
    number->length = (size_t)(digits + sizeof digits - at);
    memcpy(number->text, at, number->length);
}

static inline char *put(char *out, Piece piece)
{
    memcpy(out, piece.text, piece.length);
    return out + piece.length;
}

static inline char *put_number(char *out, const Number *number)
{
    memcpy(out, number->text, STEP);
    return out + number->length;
}

/* Write the numbers from `first` to `last` with commas between them. */
static inline char *put_numbers(char *out, const Number *numbers, int first, int last)
{
    out = put_number(out, &numbers[first]);
    for (int i = first + 1; i <= last; i++) {
        *out++ = ',';
        out = put_number(out, &numbers[i]);
    }
    return out;
}

/* Write the text of each line's problem.  Return -1 if a number or a tail is out of range.  `text` has room for all. */
static int write_texts(size_t lines, const int64_t *sizes, const int32_t *tails, const Piece *pieces, size_t tail_count,
                       char *text, int32_t *ends)
{
    static const Piece k = {" k=", 3}, filter = {" filter=", 8};
    const char *texts = text;
    Number numbers[SIZES];
    memset(numbers, 0, sizeof numbers);
    ends[0] = 0;
    for (size_t line = 0; line < lines; line++) {
        if (tails[line] < 0 || (size_t)tails[line] >= tail_count)
            return -1;
        const Piece *piece = pieces + PIECES * (size_t)tails[line];
        for (size_t i = 0; i < SIZES; i++) {
            int64_t value = sizes[i * lines + line];
            if (value < 0 || value > 999999999)
                return -1;
            print_number(&numbers[i], (uint32_t)value);
        }
        text = put(text, piece[0]);
        text = put(put_numbers(text, numbers, N, W), k);
        text = put(put_number(text, &numbers[K]), filter);
        text = put(put_numbers(text, numbers, FILTER_D, FILTER_W), piece[1]);
        text = put(put_numbers(text, numbers, OUT_D, OUT_W), piece[2]);
        ends[line + 1] = (int32_t)(text - texts);
    }
    return 0;
}

/* Return the pieces from a tuple of tuples of bytes: PIECES per tail. */
static Piece *pieces_of(PyObject *tails)
{
    size_t count = (size_t)PyTuple_GET_SIZE(tails);
    Piece *pieces = malloc((count * PIECES + 1) * sizeof *pieces);
    if (!pieces) {
        PyErr_NoMemory();
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        PyObject *tail = PyTuple_GET_ITEM(tails, (Py_ssize_t)i);
        int right = PyTuple_Check(tail) && PyTuple_GET_SIZE(tail) == PIECES;
        for (size_t j = 0; right && j < PIECES; j++) {
            PyObject *piece = PyTuple_GET_ITEM(tail, (Py_ssize_t)j);
            right = PyBytes_Check(piece);
            if (right)
                pieces[i * PIECES + j] = (Piece){PyBytes_AS_STRING(piece), (size_t)PyBytes_GET_SIZE(piece)};
        }
        if (!right) {
            PyErr_SetString(PyExc_TypeError, "a tail has three pieces of bytes");
            free(pieces);
            return NULL;
        }
    }
    return pieces;
}

static PyObject *texts_of(const Py_buffer *sizes, const Py_buffer *tails, PyObject *told)
{
    size_t lines = (size_t)tails->len / sizeof(int32_t), tail_count = (size_t)PyTuple_GET_SIZE(told);
    if ((size_t)sizes->len != SIZES * lines * sizeof(int64_t) || tails->len % (Py_ssize_t)sizeof(int32_t)) {
        PyErr_SetString(PyExc_ValueError, "twelve sizes and a tail per line");
        return NULL;
    }
    Piece *pieces = pieces_of(told);
    if (!pieces)
        return NULL;
    const int32_t *tail = tails->buf;
    size_t room = STEP;
    for (size_t i = 0; i < lines; i++) {
        if (tail[i] < 0 || (size_t)tail[i] >= tail_count)
            continue; /* write_texts reports it */
        const Piece *piece = pieces + PIECES * (size_t)tail[i];
        room += piece[0].length + piece[1].length + piece[2].length + 11 + SIZES * (DIGITS + 1);
    }
    PyObject *problems = NULL, *problem_ends = NULL, *result = NULL;
    char *problem = NULL;
    int32_t *ends = NULL;
    int failed = -1;
    if (room > INT32_MAX)
        PyErr_SetString(PyExc_OverflowError, "texts of more than 2 GiB");
    else {
        problems = column(room, 1, &problem);
        problem_ends = column(lines + 1, sizeof *ends, &ends);
    }
    if (problems && problem_ends) {
        Py_BEGIN_ALLOW_THREADS
        failed = write_texts(lines, sizes->buf, tail, pieces, tail_count, problem, ends);
        Py_END_ALLOW_THREADS
        if (failed)
            PyErr_SetString(PyExc_ValueError, "a size or a tail is out of range");
    }
    if (!failed && _PyBytes_Resize(&problems, ends[lines]) == 0)
        result = PyTuple_Pack(2, problem_ends, problems);
    Py_XDECREF(problems);
    Py_XDECREF(problem_ends);
    free(pieces);
    return result;
}

static PyObject *texts(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer sizes, tails;
    PyObject *told;
    if (!PyArg_ParseTuple(args, "y*y*O!", &sizes, &tails, &PyTuple_Type, &told))
        return NULL;
    PyObject *result = texts_of(&sizes, &tails, told);
    PyBuffer_Release(&sizes);
    PyBuffer_Release(&tails);
    return result;
}

static PyMethodDef methods[] = {
    {"index", index_file, METH_VARARGS, "index(file, whole) -> where records stand, and those of the usual form: see the stub."},
    {"texts", texts, METH_VARARGS,
     "texts(sizes, tails, pieces) -> (ends, texts) of each line's problem."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "_find_db", .m_size = -1, .m_methods = methods};

PyMODINIT_FUNC PyInit__find_db(void)
{
    PyObject *salt = PyBytes_FromString("logparse"), *made = PyModule_Create(&module);
    seed = salt ? (uint64_t)PyObject_Hash(salt) : 0;
    Py_XDECREF(salt);
#ifdef __GLIBC__
    /* Columns of megabytes are made and freed often.  By default the kernel would map, zero and unmap each of them. */
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 64 << 20);
#endif
    if (made && PyModule_AddIntConstant(made, "VERSION", VERSION) < 0)
        Py_CLEAR(made);
    return made;
}
