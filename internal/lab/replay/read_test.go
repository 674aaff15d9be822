package replay

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

	"github.com/grapevine-epp/grapevine/internal/strict"
)

func TestReadRefuses(t *testing.T) {
	f := func(line, want string) {
		t.Helper()
		_, err := ReadTrace(strings.NewReader(line), ReadOptions{BlockSize: 10})
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

// TestReadClock: a clock that began long before counts from the first arrival,
// and lines need no order.
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
	tr, err := OpenTrace(path, ReadOptions{})
	if err != nil || tr.Name != "small" || len(tr.Requests) != 1 {
		t.Errorf("%+v, %v", tr, err)
	}
	if err := os.WriteFile(path, b.Bytes()[:12], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenTrace(path, ReadOptions{}); err == nil {
		t.Error("half a file is no error")
	}
}

// TestUnseenAnswers: answers without a length get one that was seen, with room
// for it before the session's next prompt.
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

func TestFleets(t *testing.T) {
	f, err := ParseFleet("1+2x0.5+1x8b")
	if err != nil || f.Capacity() != 3 || !f.Mixed() || len(f.Kinds) != 4 {
		t.Fatalf("%+v, %v", f, err)
	}
	var c Case
	f.Apply(&c)
	if c.Endpoints != 4 || !slices.Equal(c.Slow, []float64{1, 2, 2, 1}) || c.Models[3].B != 16.6 || c.capacity() != 3 {
		t.Errorf("%+v", c)
	}
	for _, s := range []string{"", "0", "x", "-1", "4x", "4x0", "4xNaN", "4+", "2x13b", "99999"} {
		if _, err := ParseFleet(s); !errors.Is(err, ErrCase) {
			t.Errorf("%q: %v", s, err)
		}
	}
}

// TestMixedFleet: an engine of a tenth of the speed takes ten times as long.
func TestMixedFleet(t *testing.T) {
	one := read(t, `{"timestamp":0,"input_length":5000,"output_length":1,"hash_ids":[1,2,3,4,5,6,7,8,9]}`, ReadOptions{})
	first := func(fleet string) time.Duration {
		f, err := ParseFleet(fleet)
		if err != nil {
			t.Fatal(err)
		}
		c := Case{Trace: one, Policy: policy(t, "load_only")}
		f.Apply(&c)
		return run(t, c).Outcomes[0].First
	}
	usual, slow, small := first("1"), first("1x0.1"), first("1x8b")
	if d := slow - 10*usual; d > time.Microsecond || d < -time.Microsecond || small >= usual {
		t.Errorf("%v, %v, %v", usual, slow, small)
	}
}

func TestFilePolicy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "epp.yaml")
	write := func(text string) {
		if err := os.WriteFile(path, []byte("apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("plugins:\n- {type: lmetric-policy}\n")
	p, err := FilePolicy(path)
	if err != nil || p.Name != "epp.yaml" {
		t.Fatal(p.Name, err)
	}
	c := Case{Trace: small(t, "chat", 5, 1), Policy: p, Endpoints: 4, Replicas: 2, Seed: 3}
	got := encoded(t, c)
	if c.Policy = policy(t, "lmetric"); encoded(t, c) != got {
		t.Error("a file with lmetric decides otherwise than lmetric")
	}
	write("plugins:\n- {type: lmetric}\n")
	var problems strict.Problems
	if _, err := FilePolicy(path); !errors.As(err, &problems) || problems[0].Line != 4 {
		t.Errorf("%v", err)
	}
	if IsFile("default") || !IsFile("epp.yml") || !IsFile("conf/epp") {
		t.Error("paths and names are mixed up")
	}
}

// TestReadAbsurdCounts holds that an engine's count of cached tokens stays
// between none and the whole prompt.
func TestReadAbsurdCounts(t *testing.T) {
	const lines = `{"timestamp":1,"input_length":600,"output_length":9,"hash_ids":[1,2],"cached_tokens":-5}
{"timestamp":2,"input_length":600,"output_length":9,"hash_ids":[1,2],"cached_tokens":9000}`
	tr, err := ReadTrace(strings.NewReader(lines), ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if r := tr.Recorded; r.Counted != 2 || r.HitRatio() != .5 {
		t.Errorf("%+v, hit ratio %v", r, r.HitRatio())
	}
}
