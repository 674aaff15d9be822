package trace

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// dialects are the public tables of lengths, by the names of their columns.
var dialects = []dialect{
	{name: "Azure", at: "timestamp", input: "contexttokens", output: "generatedtokens"},
	{name: "BurstGPT", at: "timestamp", input: "request tokens", output: "response tokens", session: "session id", failed: true, tick: time.Second},
	{name: "Vidur", at: "arrived_at", input: "num_prefill_tokens", output: "num_decode_tokens"},
}

type dialect struct {
	name              string
	at, input, output string
	session           string        // "" where requests stand alone; the column may be missing
	failed            bool          // no answer tokens: the request failed
	tick              time.Duration // to which arrivals are rounded; 0: to none, or found out
}

// table reads a CSV table with a header, one row at a time.
type table struct {
	reader
	dialect
	o        *ReadOptions
	contexts contexts
	first    time.Duration // arrival of the first row, since 1970 or the table's own beginning
	column   struct{ at, input, output, session int }
}

func (t *table) read(r io.Reader) error {
	rows := csv.NewReader(r)
	rows.ReuseRecord = true
	head, err := rows.Read()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrTrace, err)
	}
	if err := t.header(head); err != nil {
		return fmt.Errorf("%w: %w", ErrTrace, err)
	}
	for n := 0; ; n++ {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrTrace, err)
		}
		if err := t.row(row, n == 0); err != nil {
			line, _ := rows.FieldPos(0)
			return fmt.Errorf("%w: line %d: %w", ErrTrace, line, err)
		}
	}
}

// header finds out which table it is.
func (t *table) header(head []string) error {
	names := make([]string, len(head))
	for i, h := range head {
		names[i] = strings.ToLower(strings.Trim(h, " \ufeff"))
	}
	find := func(name string) int { return slices.Index(names, name) }
	for _, d := range dialects {
		t.column.at, t.column.input, t.column.output = find(d.at), find(d.input), find(d.output)
		if min(t.column.at, t.column.input, t.column.output) < 0 {
			continue
		}
		t.dialect, t.column.session = d, -1
		if d.session != "" {
			t.column.session = find(d.session)
		}
		return nil
	}
	return fmt.Errorf("a text that begins with %.100q is neither lines of JSON nor a table that is known: Azure's (TIMESTAMP, ContextTokens, GeneratedTokens), BurstGPT's (Timestamp, Request tokens, Response tokens), Vidur's (arrived_at, num_prefill_tokens, num_decode_tokens)",
		strings.Join(head, ","))
}

func (t *table) row(row []string, first bool) error {
	at, err := moment(row[t.column.at])
	if err != nil {
		return err
	}
	input, err := tokens(row[t.column.input])
	if err != nil {
		return err
	}
	output, err := tokens(row[t.column.output])
	if err != nil {
		return err
	}
	if first {
		t.first = at
	}
	at -= t.first + t.o.Begin
	if (at < 0 && t.o.Begin > 0) || (at >= t.o.Length && t.o.Length > 0) {
		return nil
	}
	if input == 0 || (t.failed && output == 0) {
		t.recorded.LeftOut++
		return nil
	}
	if len(t.requests) == mostRows {
		return fmt.Errorf("more than %d requests: take a part of the trace (--begin, --length)", mostRows)
	}
	r := Request{At: at, Input: input, Output: output}
	r.Session, r.Blocks = t.context(row, input)
	t.requests = append(t.requests, r)
	return nil
}

// mostRows limits the rows kept of a table: some tables have tens of millions of rows.
const mostRows = 1 << 22

// context returns the number of a row's session, and the blocks of its prompt.
func (t *table) context(row []string, tokens int) (session int32, blocks []Block) {
	if t.column.session >= 0 {
		if name := row[t.column.session]; name != "" && !strings.EqualFold(name, "nan") {
			session = t.number(name)
			had, known := t.contexts.of[session]
			if !known {
				had = t.contexts.begin()
			}
			blocks, t.contexts.of[session] = t.contexts.next(had, tokens)
			return session, blocks
		}
	}
	blocks, _ = t.contexts.next(t.contexts.begin(), tokens)
	return t.begin(), blocks
}

// moment reads a time: seconds since some beginning, or a date.
func moment(s string) (time.Duration, error) {
	if f, err := strconv.ParseFloat(s, 64); err == nil {
		if math.Abs(f) < maxTime.Seconds() {
			return time.Duration(f * float64(time.Second)), nil
		}
		return 0, fmt.Errorf("timestamp %q is out of range", s)
	}
	for _, layout := range []string{"2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05", time.RFC3339, "2006-01-02T15:04:05"} {
		if at, err := time.Parse(layout, s); err == nil && at.Year() >= 1970 && at.Year() < 2170 {
			return time.Duration(at.UnixNano()), nil
		}
	}
	return 0, fmt.Errorf("timestamp %.60q: want seconds, or a date such as 2023-11-16 18:15:46.6805900", s)
}

// tokens reads a number of tokens, which some tables write as 12.0.
func tokens(s string) (int, error) {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || !(f >= 0 && f <= maxTokens) || f != math.Trunc(f) {
		return 0, fmt.Errorf("tokens %.60q: want a number from 0 to %d", s, maxTokens)
	}
	return int(f), nil
}
