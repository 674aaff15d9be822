package strict

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

type inner struct {
	Names []string       `json:"names"`
	Marks map[string]int `json:"marks"`
}

type all struct {
	Text   string          `json:"text"`
	Yes    bool            `json:"yes"`
	Int    int             `json:"int"`
	Small  uint8           `json:"small"`
	Float  float64         `json:"float"`
	Wait   time.Duration   `json:"wait"`
	Ptr    *int64          `json:"ptr"`
	Loose  json.RawMessage `json:"loose"`
	Inner  inner           `json:"inner"`
	Listed []inner         `json:"listed,omitempty"`
	inner
}

func decode(text string, into any) []string {
	n, r := Parse("f", []byte(text))
	_ = n.Decode(into)
	var out []string
	for _, p := range r.Problems() {
		out = append(out, p.String())
	}
	return out
}

func TestDecode(t *testing.T) {
	got := all{Text: "default", Float: 7}
	problems := decode(`
text: null
yes: true
int: 0x10
small: 255
float: 3
wait: 1m30s
ptr: -5
loose: {b: [1, 2.5, "x<y", null, true], a: {}}
inner: {names: [a, "1"], marks: {x: 1}}
listed: [{names: []}, {}]
names: [flat]
`, &got)
	minus := int64(-5)
	want := all{
		Text: "default", Yes: true, Int: 16, Small: 255, Float: 3, Wait: 90 * time.Second, Ptr: &minus,
		Loose: json.RawMessage(`{"b":[1,2.5,"x<y",null,true],"a":{}}`),
		Inner: inner{Names: []string{"a", "1"}, Marks: map[string]int{"x": 1}}, Listed: []inner{{Names: []string{}}, {}},
		inner: inner{Names: []string{"flat"}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(all{})); diff != "" || problems != nil {
		t.Errorf("problems %v, value (-want +got):\n%s", problems, diff)
	}
}

func TestDecodeProblems(t *testing.T) {
	got := decode(`text: [1]
yes: "true"
int: 1.5
small: 256
float: .inf
wait: 30
ptr: many
inner: {nmaes: [], marks: {x: y}}
listed: {}
txet: a
loose: .nan
`, &all{})
	want := []string{
		"f:1:7: text must be text, not a list",
		"f:2:6: yes must be true or false, not the text \"true\"",
		"f:3:6: int must be a whole number, not the number 1.5",
		"f:4:8: small must be between 0 and 255, not 256",
		"f:5:8: float must be a number, not the number .inf",
		"f:6:7: wait must be a duration, not the number 30 (write it with its unit: 250ms, 30s, 5m)",
		"f:7:6: ptr must be a whole number, not the text \"many\"",
		"f:8:9: unknown field \"nmaes\" in inner (did you mean \"names\"?)",
		"f:8:31: inner.marks.x must be a whole number, not the text \"y\"",
		"f:9:9: listed must be a list, not an object",
		"f:10:1: unknown field \"txet\" (did you mean \"text\"?)",
		"f:11:8: loose: \".nan\" has no form in JSON",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func TestAt(t *testing.T) {
	n, r := Parse("f", []byte("a:\n  b:\n    c: 1\n"))
	for path, line := range map[string]int{"a.b.c": 3, "a.b.d": 3, "a.x.c": 2, "z": 1, "a.b.c.d": 3} {
		if got := n.At(path).Line(); got != line {
			t.Errorf("At(%q) is on line %d, want %d", path, got, line)
		}
	}
	if n.At("a.b").Problem("", "seen"); r.Len() != 1 {
		t.Errorf("%d problems after one at a path", r.Len())
	}
}

func TestAtElement(t *testing.T) {
	n, r := Parse("f", []byte("a:\n- b: 1\n- b: 2\n  c: [3, 4]\n"))
	for path, want := range map[string]string{"a[0].b": "1", "a[1].b": "2", "a[1].c[1]": "4"} {
		if got := valueOf(n.At(path).at); got != want {
			t.Errorf("At(%q) is %q, want %q", path, got, want)
		}
	}
	for path, line := range map[string]int{"a[2].b": 2, "a[1].d": 3, "a.b": 2, "a[-1]": 2} {
		if got := n.At(path).Line(); got != line {
			t.Errorf("At(%q) is on line %d, want %d", path, got, line)
		}
	}
	at := n.At("a[1].b")
	if at.HasProblem() {
		t.Error("HasProblem() = true without a problem")
	}
	if at.Problem("", "seen"); !at.HasProblem() || n.At("a[0].b").HasProblem() || r.Len() != 1 {
		t.Error("HasProblem() is wrong next to the problem's position")
	}
}

// TestSyntax: a syntax error is reported where the text becomes invalid, not where the parser's
// construct began.
func TestSyntax(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		_, r := Parse("f", []byte(text))
		if got := r.Problems().Error(); got != want {
			t.Errorf("%q:\n%s, want\n%s", text, got, want)
		}
	}
	f("a:\n  - b: 1\n   c: 2\n", "f:3:4: did not find expected '-' indicator")
	f("a:\n\t- b\n", "f:2:1: found character that cannot start any token (indent with spaces: a tab is not allowed here)")
	f("a: 1\nb: c: d\n", "f:2:1: mapping values are not allowed in this context")
	f("a: 1\n\nb: *none\n", "f:3:1: unknown anchor 'none' referenced")
	f("a: {b: 1\nc: 2\nd: 3\n", "f:2:1: did not find expected ',' or '}'")
	f("a:\n- {b: 1\n", "f:2:3: did not find expected ',' or '}' (what begins here is not closed)")
	f("{\"a\": 1,\n \"b\": [1,\n  2],\n \"c\": {\"d\": 3}\n \"e\": 4,\n \"f\": 5}\n", "f:5:2: did not find expected ',' or '}'")
	f("# don't\na: {b: 1\nc: 2\nd: 3\n", "f:3:1: did not find expected ',' or '}'")
	f("a: it's\nb: {c: 1\nd: 2\ne: 3\n", "f:3:1: did not find expected ',' or '}'")
	f("a: ['it''s {', \"\\\\\", \"\\\"[\"]\nb: {c: 1\nd: 2\ne: 3\n", "f:3:1: did not find expected ',' or '}'")
	f("a: 1\n---\nb: [\n", "f:3:4: did not find expected node content (what begins here is not closed)")
}

func TestNearest(t *testing.T) {
	words := []string{"max-score-picker", "random-picker", "queue-scorer", "kv-cache-utilization-scorer"}
	for word, want := range map[string]string{
		"maxScorePicker": "max-score-picker", "max-score-pciker": "max-score-picker", "queue_scorer": "queue-scorer",
		"kv-cache-utilisation-scorer": "kv-cache-utilization-scorer", "que-scorer": "queue-scorer", "unrelated": "", "": "",
		strings.Repeat("x", 1000): "",
	} {
		if got := Nearest(word, words); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", word, got, want)
		}
	}
}

// TestDistance: the distance is a metric: zero only for equal words, symmetric, and at most the
// longer word's length.
func TestDistance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.StringMatching(`[a-c]{0,8}`).Draw(t, "a")
		b := rapid.StringMatching(`[a-c]{0,8}`).Draw(t, "b")
		d := distance(a, b)
		if (d == 0) != (a == b) || d != distance(b, a) || d > max(len(a), len(b)) {
			t.Fatalf("distance(%q, %q) = %d, reversed %d", a, b, d, distance(b, a))
		}
	})
}

// FuzzDecode: no input makes decoding panic, and JSON output is valid.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("text: a\nlisted: [{names: [b]}]\nloose: {x: [1, 0x1f, 1e3, ~]}"))
	f.Add([]byte("a: &a [1]\nb: *a\n<<: {c: *a}"))
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, data []byte) {
		n, r := Parse("f", data)
		var v all
		if err := n.Decode(&v); (err != nil) && r.Len() == 0 {
			t.Errorf("error %v without a reported problem", err)
		}
		if out, err := n.JSON(); err == nil && !json.Valid(out) {
			t.Errorf("invalid JSON %q", out)
		}
	})
}
