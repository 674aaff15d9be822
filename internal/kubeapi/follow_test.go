package kubeapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

// thing is the test's reduced object.
type thing struct{ name, version, uid, value string }

func readThing(raw []byte) (thing, error) {
	var o struct {
		Metadata Meta   `json:"metadata"`
		Value    string `json:"value"`
	}
	err := json.Unmarshal(raw, &o)
	return thing{o.Metadata.Name, o.Metadata.ResourceVersion, o.Metadata.UID, o.Value}, err
}

var things = Kind[thing]{
	Resource: Resource{Group: "example.org", Version: "v1", Plural: "things"},
	Read:     readThing,
	Key:      func(t *thing) (string, string) { return t.name, t.version },
	Same:     func(a, b *thing) bool { return a.value == b.value && a.uid == b.uid },
}

func object(name, version, value string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"resourceVersion":%q,"uid":"u"},"value":%q}`, name, version, value)
}

func listOf(version, next string, objects ...string) string {
	return fmt.Sprintf(`{"kind":"ThingList","metadata":{"resourceVersion":%q,"continue":%q},"items":[%s]}`, version, next, strings.Join(objects, ","))
}

func line(kind, object string) string {
	return fmt.Sprintf(`{"type":%q,"object":%s}`, kind, object) + "\n"
}

// script is a server that answers each request with the next step.
type script struct {
	t     *testing.T
	steps chan step
}

// step is one expected request and its response.
type step struct {
	want   string // in the request's URL
	code   int    // 0: 200
	answer string
	hold   bool // keep the response open until the client disconnects
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case <-r.Context().Done():
	case step := <-s.steps:
		if got := r.URL.String(); !strings.Contains(got, step.want) {
			s.t.Errorf("got request for %s, want %s", got, step.want)
		}
		if step.code != 0 {
			w.WriteHeader(step.code)
		}
		_, _ = w.Write([]byte(step.answer))
		w.(http.Flusher).Flush()
		if step.hold {
			<-r.Context().Done()
		}
	}
}

// begin follows things at a server that runs the steps.
func begin(t *testing.T, v View, steps ...step) (*Follower[thing], chan struct{}, chan step) {
	t.Helper()
	s := &script{t: t, steps: make(chan step, 100)}
	for _, x := range steps {
		s.steps <- x
	}
	server := httptest.NewServer(s)
	client, err := NewClient(Config{Server: server.URL}, "test")
	if err != nil {
		t.Fatal(err)
	}
	changed := make(chan struct{}, 1000)
	f := Follow(client, things, v, slog.New(slog.DiscardHandler), func() { changed <- struct{}{} })
	t.Cleanup(func() { f.Close(); client.Close(); server.Close() })
	return f, changed, s.steps
}

// until waits for changes until a condition holds.
func until(t *testing.T, changed <-chan struct{}, what string, ok func() bool) {
	t.Helper()
	end := time.After(testkit.HangTimeout)
	for !ok() {
		select {
		case <-changed:
		case <-end:
			t.Fatalf("not within %v: %s", testkit.HangTimeout, what)
		}
	}
}

func values(f *Follower[thing]) string {
	var out []string
	for _, x := range f.Items() {
		out = append(out, x.name+"="+x.value)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// TestFollow lists in pages, watches, resumes, and lists again if the version is gone.
func TestFollow(t *testing.T) {
	f, changed, more := begin(t, View{Namespace: "ns", Labels: "a=b"},
		step{want: "/apis/example.org/v1/namespaces/ns/things?labelSelector=a%3Db&limit=500", answer: listOf("", "more", object("x", "1", "1"), object("y", "2", "1"))},
		step{want: "continue=more", answer: listOf("10", "", object("z", "3", "1"))},
		step{want: "resourceVersion=10", answer: line("MODIFIED", object("x", "11", "2")) + line("DELETED", object("y", "12", "1")) + line("ADDED", object("w", "13", "1")) + line("BOOKMARK", object("", "20", ""))},
		step{want: "resourceVersion=20", answer: line("ERROR", `{"kind":"Status","code":410,"reason":"Expired","message":"too old resource version: 20 (99)"}`)},
		step{want: "limit=500", answer: listOf("100", "", object("x", "50", "3"))},
		step{want: "resourceVersion=100", code: 410, answer: `{"kind":"Status","code":410,"reason":"Expired"}`},
		step{want: "limit=500", answer: listOf("200", "", object("x", "50", "3"), object("v", "60", "1"))},
		step{want: "resourceVersion=200", hold: true, answer: line("ADDED", object("u", "201", "1"))},
	)
	until(t, changed, "all pages and events", func() bool { return values(f) == "u=1 v=1 x=3" })
	if s := f.State(); !s.Listed || s.Err != nil || s.Read.IsZero() {
		t.Errorf("state %+v", s)
	}
	if len(more) != 0 {
		t.Errorf("%d steps were not requested", len(more))
	}
}

// TestFollowThroughOutage: with an API server's typical failures, known objects stay, and the state
// has the error and its start.
func TestFollowThroughOutage(t *testing.T) {
	f, changed, more := begin(t, View{Namespace: "ns", Name: "x"},
		step{want: "fieldSelector=metadata.name%3Dx", answer: listOf("10", "", object("x", "1", "1"))},
		step{want: "resourceVersion=10", code: 503, answer: "etcd is away"},
	)
	until(t, changed, "trouble", func() bool { return f.State().Err != nil })
	first := f.State()
	if values(f) != "x=1" || !first.Listed || CodeOf(first.Err) != 503 || first.Since.IsZero() {
		t.Errorf("%s, state %+v", values(f), first)
	}
	forbidden := `{"kind":"Status","code":403,"reason":"Forbidden","message":"things is forbidden"}`
	more <- step{want: "resourceVersion=10", code: 403, answer: forbidden}
	more <- step{want: "limit=500", code: 403, answer: forbidden}
	until(t, changed, "missing right", func() bool { return IsForbidden(f.State().Watch) && IsForbidden(f.State().Err) })
	want := Rule{Group: "example.org", Resource: "things", Verbs: []string{"watch"}, Namespace: "ns"}
	var e *Error
	if !errors.As(f.State().Watch, &e) || !cmp.Equal(e.Rule, want) || !strings.Contains(e.Error(), `apiGroups ["example.org"] resources ["things"] verbs ["watch"] in a Role of namespace ns`) {
		t.Errorf("missing permission: %v", e)
	}
	if s := f.State(); s.Since != first.Since {
		t.Error("a new reason changed the start of the outage")
	}
	more <- step{want: "limit=500", answer: listOf("11", "", object("x", "1", "1"))}
	more <- step{want: "resourceVersion=11", hold: true, answer: line("MODIFIED", object("x", "12", "2"))}
	until(t, changed, "recovery", func() bool { return f.State().Err == nil && f.State().Watch == nil && values(f) == "x=2" })
}

// TestFollowAbsentKind waits for a type that is not installed.
func TestFollowAbsentKind(t *testing.T) {
	f, changed, more := begin(t, View{Namespace: "ns"}, step{want: "things", code: 404, answer: "404 page not found\n"})
	until(t, changed, "absence", func() bool { return f.State().Absent() })
	if s := f.State(); s.Listed || IsForbidden(s.Err) {
		t.Errorf("state %+v", s)
	}
	more <- step{want: "limit=500", answer: listOf("1", "")}
	more <- step{want: "resourceVersion=1", hold: true}
	until(t, changed, "installation", func() bool { return f.State().Listed && f.State().Err == nil })
	gone := &Error{Code: 404, Name: "x"}
	if IsAbsent(gone) || !IsGone(gone) {
		t.Error("a missing object was reported as a missing type")
	}
}

// TestFollowBrokenObject keeps an object's last readable content.
func TestFollowBrokenObject(t *testing.T) {
	broken := `{"metadata":{"name":"x","resourceVersion":"2"},"value":7}`
	f, changed, more := begin(t, View{},
		step{want: "limit=500", answer: listOf("1", "", object("x", "1", "1"))},
		step{want: "watch", answer: line("MODIFIED", broken) + line("ADDED", object("y", "3", "1"))},
	)
	until(t, changed, "event after the broken one", func() bool { return values(f) == "x=1 y=1" })
	if n := f.State().Broken; n != 1 {
		t.Errorf("%d broken objects, want 1", n)
	}
	more <- step{want: "resourceVersion=3", code: 410, answer: `{"kind":"Status","code":410,"reason":"Gone"}`}
	more <- step{want: "limit=500", answer: listOf("9", "", broken)}
	more <- step{want: "resourceVersion=9", hold: true, answer: line("ADDED", object("z", "10", "1"))}
	until(t, changed, "second listing", func() bool { return values(f) == "x=1 z=1" })
}

// TestCutAnswers truncates a list and a watch at every byte. An incomplete list changes nothing.
func TestCutAnswers(t *testing.T) {
	whole := listOf("7", "", object("x", "1", "1"), object("y", "2", "1"))
	for n := range len(whole) {
		if m, err := readList(strings.NewReader(whole[:n]), func(json.RawMessage) error { return nil }); err == nil {
			t.Fatalf("the first %d bytes of a list were accepted with version %q", n, m.ResourceVersion)
		}
	}
	events := line("ADDED", object("x", "1", "1"))
	for n := 1; n < len(events)-1; n++ {
		err := readWatch(strings.NewReader(events[:n]), func(event) error { t.Fatal("a cut event was taken"); return nil })
		if err == nil {
			t.Fatalf("the first %d bytes of an event caused no error", n)
		}
	}
}

func FuzzAnswers(f *testing.F) {
	f.Add([]byte(listOf("7", "c", object("x", "1", "1"))))
	f.Add([]byte(line("ADDED", object("x", "1", "1")) + line("ERROR", `{"kind":"Status","code":410,"details":{"causes":[{"reason":"ResourceVersionTooLarge"}]}}`)))
	f.Add([]byte(`{"items":null,"metadata":null}`))
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, data []byte) {
		count := 0
		_, err := readList(strings.NewReader(string(data)), func(json.RawMessage) error { count++; return nil })
		if err == nil && count > len(data) {
			t.Errorf("%d objects in %d bytes", count, len(data))
		}
		if err := readWatch(strings.NewReader(string(data)), func(e event) error { _, _ = readThing(e.Object); return nil }); err == nil {
			t.Error("a watch ended without an error")
		}
		_ = errorOf(500, data).Error()
	})
}
