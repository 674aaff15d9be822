package trace

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestReadRefuses(t *testing.T) {
	f := func(line, want string) {
		t.Helper()
		_, err := Read(strings.NewReader(line), ReadOptions{BlockSize: 10})
		if !errors.Is(err, ErrTrace) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", line, err)
		}
	}
	f(`{"input_length":1,"output_length":1,"hash_ids":[1]}`, "timestamp is missing")
	f(`{"timestamp":"0","input_length":1,"output_length":1,"hash_ids":[1]}`, `timestamp "0": want a number`)
	f(`{"timestamp":1e30,"input_length":1,"output_length":1,"hash_ids":[1]}`, "timestamp 1e30")
	f(`{"timestamp":0,"input_length":1,"hash_ids":[1]}`, "output_length is missing")
	f(`{"timestamp":0,"input_length":1,"output_length":1}`, "hash_ids is missing")
	f(`{"timestamp":0,"input_length":1,"output_length":1,"hash_ids":7}`, "hash_ids")
	f(`{"timestamp":0,"input_length":10,"output_length":1,"hash_ids":[1,2]}`, "2 hash_ids for 10 tokens")
	f(`{"timestamp":0,"input_length":1,"output_length":1,"hash_ids":[1]}`+"\n"+`{"timestamp":9e9,"input_length":1,"output_length":1,"hash_ids":[1]}`, "it spans 2916h")
	f(`{"timestamp":0,"input_length":1,"output_length":1,"hash_ids":[],"status":404}`, "no request")
}

// TestReadClock checks that time starts at the first arrival, and that lines may be in any order.
func TestReadClock(t *testing.T) {
	tr := read(t, `
{"timestamp":1800000002500,"input_length":1,"output_length":1,"hash_ids":[18446744073709551615]}
{"timestamp":1800000000000,"input_length":2,"output_length":1,"hash_ids":[1]}
`, ReadOptions{Spread: -1})
	if r := tr.Requests; r[0].At != 0 || r[0].Input != 2 || r[1].At != 2500*time.Millisecond || tr.Blocks != 2 {
		t.Errorf("%+v", r)
	}
	if tr := read(t, `{"timestamp":90000,"input_length":1,"output_length":1,"hash_ids":[1]}`, ReadOptions{Spread: -1}); tr.Requests[0].At != 90*time.Second {
		t.Errorf("%+v", tr.Requests)
	}
}

func TestReadCompressed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "small_trace.jsonl.gz")
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	fmt.Fprintln(z, `{"timestamp":0,"input_length":1,"output_length":1,"hash_ids":[1]}`)
	z.Close()
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	tr, err := Open(path, ReadOptions{})
	if err != nil || tr.Name != "small" || len(tr.Requests) != 1 {
		t.Errorf("%+v, %v", tr, err)
	}
	if err := os.WriteFile(path, b.Bytes()[:12], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, ReadOptions{}); err == nil {
		t.Error("half a file is no error")
	}
}

// TestUnseenAnswers checks that answers of unknown length get a length from others that fits before
// the session's next prompt.
func TestUnseenAnswers(t *testing.T) {
	line := func(at, input, output int, session string) string {
		return fmt.Sprintf(`{"timestamp":%d,"input_length":%d,"output_length":%d,"hash_ids":[%s],"session_id":%q}`+"\n",
			at, input, output, strings.Trim(strings.Repeat("1,", input/10), ","), session)
	}
	tr := read(t, line(0, 40, 30, "a")+line(1, 50, 0, "b")+line(2, 50, 0, "c")+line(3, 60, 0, "b")+line(4, 40, 35, "d"), ReadOptions{BlockSize: 10})
	if tr.Recorded.Unseen != 3 {
		t.Errorf("%+v", tr.Recorded)
	}
	for i, want := range [][]int{{30}, {10}, {30, 35}, {30, 35}, {35}} {
		if got := tr.Requests[i].Output; !slices.Contains(want, got) {
			t.Errorf("request %d answers with %d tokens, want one of %v", i, got, want)
		}
	}
	if tr := read(t, line(0, 40, 0, "a"), ReadOptions{BlockSize: 10}); tr.Requests[0].Output != assumedAnswer {
		t.Errorf("%+v", tr.Requests)
	}
}

// TestReadAbsurdCounts checks that the count of cached tokens is clamped to the length of the
// prompt.
func TestReadAbsurdCounts(t *testing.T) {
	const lines = `{"timestamp":1,"input_length":600,"output_length":9,"hash_ids":[1,2],"cached_tokens":-5}
{"timestamp":2,"input_length":600,"output_length":9,"hash_ids":[1,2],"cached_tokens":9000}`
	tr, err := Read(strings.NewReader(lines), ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if r := tr.Recorded; r.Counted != 2 || r.HitRatio() != .5 {
		t.Errorf("%+v, hit ratio %v", r, r.HitRatio())
	}
}

// TestTenants checks tenants and priorities of lines; most lines have neither.
func TestTenants(t *testing.T) {
	const rest = `, "input_length": 5, "output_length": 1, "hash_ids": []}`
	text := `{"timestamp": 0, "tenant": "gold", "priority": 10` + rest + `
{"timestamp": 1` + rest + `
{"timestamp": 2, "tenant": 7, "priority": -3` + rest + `
{"timestamp": 3, "tenant": null, "priority": null` + rest + `
{"timestamp": 4, "tenant": "gold", "priority": 0` + rest
	tr, err := Read(strings.NewReader(text), ReadOptions{Spread: -1})
	if err != nil {
		t.Fatal(err)
	}
	for _, made := range []*Trace{tr, tr.AsRecorded(ScaleOptions{}), tr.Capped(9)} {
		var got []string
		for _, r := range made.Requests {
			got = append(got, fmt.Sprint(made.TenantName(r.Tenant), " ", r.Priority))
		}
		if want := "[gold 10  0 7 -3  0 gold 0]"; fmt.Sprint(got) != want {
			t.Errorf("got %v, want %s", got, want)
		}
	}
	if scaled := tr.Scale(ScaleOptions{Rate: 1e4, Seed: 1}); scaled.TenantName(1) != "gold" || tr.TenantName(9) != "9" {
		t.Errorf("names %q after scaling", scaled.Tenants)
	}
	for _, bad := range []string{`"high"`, "1.5", "1e12"} {
		if _, err := Read(strings.NewReader(`{"timestamp": 0, "priority": `+bad+rest), ReadOptions{}); err == nil {
			t.Errorf("priority %s was taken", bad)
		}
	}
}
