package record

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/lab/trace"
	"github.com/grapevine-epp/grapevine/internal/server/recording"
)

// fakeReplica serves lines at /debug/record. since is the start of the recording.
func fakeReplica(t *testing.T, since int64, lines ...recording.Line) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/record", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("bodies") != "true" {
			http.Error(w, r.URL.RawQuery, http.StatusBadRequest)
			return
		}
		w.Header().Set(recording.Since, strconv.FormatInt(since, 10))
		for _, l := range lines {
			_ = json.NewEncoder(w).Encode(l)
		}
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// write records to a file. It returns the path and the summary.
func write(t *testing.T, o Options) (path, summary string, err error) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "trace.jsonl")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	o.Out = file
	summary, err = Run(t.Context(), o)
	return path, summary, err
}

// TestRecordedTraceReplays records two replicas into one trace and reads it with replay's reader.
func TestRecordedTraceReplays(t *testing.T) {
	const since = 1_800_000_000_000
	a := fakeReplica(t, since,
		recording.Line{Model: "m", Seq: 1, Timestamp: since + 250, Session: "aa", Input: 1100, Output: 20, Counted: true, PromptBytes: 2200, ChunkBytes: 256, ChunkIDs: []uint64{11, 12, 13, 1, 15, 16, 17, 2, 3}, Endpoint: "10.0.0.1:8000", Status: 200},
		recording.Line{Model: "m", Seq: 4, Timestamp: since + 750, Session: "aa", Input: 1700, Output: 0, PromptBytes: 3400, ChunkBytes: 256, ChunkIDs: []uint64{11, 12, 13, 1, 15, 16, 17, 2, 24, 25, 26, 4, 5, 6}, Endpoint: "10.0.0.1:8000", Status: 200})
	b := fakeReplica(t, since+100,
		recording.Line{Model: "m", Seq: 1, Timestamp: since + 501, Session: "bb", Tenant: "cc", Priority: -4, Input: 1024, Output: 3, Counted: true, PromptBytes: 2048, ChunkBytes: 256, ChunkIDs: []uint64{11, 12, 13, 1, 35, 36, 37, 9}, Endpoint: "10.0.0.2:8000", Status: 200})
	path, out, err := write(t, Options{Admins: []string{a, b}, Bodies: true})
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, part := range []string{"3 requests, 3824 prompt tokens, 9 hash ids", "m has 2.00 bytes for each token", "2 requests were dropped", "the length of 1 answers was not seen"} {
		if !strings.Contains(out, part) {
			t.Errorf("no %q in %s", part, out)
		}
	}
	tr, err := trace.Open(path, trace.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, r := range tr.Requests {
		got += fmt.Sprint(r.At.Milliseconds(), " ", r.Input, " ", r.Output, " ", len(r.Blocks), "\n")
	}
	if want := "250 1100 20 3\n501 1024 3 2\n750 1700 3 4\n"; got != want {
		t.Errorf("read back:\n%swant\n%s", got, want)
	}
	if whose := tr.Requests[1]; tr.TenantName(whose.Tenant) != "cc" || whose.Priority != -4 {
		t.Errorf("a request of tenant cc and priority -4: %+v", whose)
	}
	if tr.Sessions != 2 || tr.Blocks != 6 {
		t.Errorf("%d sessions, %d blocks", tr.Sessions, tr.Blocks)
	}
	if raw, err := os.ReadFile(path); err != nil || strings.Contains(string(raw), `"seq"`) || !strings.Contains(string(raw), `"hash_ids":[1,9],"model":"m"`) || strings.Contains(string(raw), "chunk") || !strings.Contains(string(raw), `"endpoint":"10.0.0.2:8000"`) {
		t.Errorf("%v: %s", err, raw)
	}
}

// TestRecordedLengths checks that a given number of bytes per token applies to prompts without a
// token count from the engine, and only to those.
func TestRecordedLengths(t *testing.T) {
	const since = 1_800_000_000_000
	ids := []uint64{1, 2, 3, 4, 5, 6, 7, 8}
	a := fakeReplica(t, since,
		recording.Line{Model: "m", Seq: 1, Timestamp: since, Input: 700, Counted: true, Output: 1, PromptBytes: 2048, ChunkBytes: 256, ChunkIDs: ids, Endpoint: "e", Status: 200},
		recording.Line{Model: "m", Seq: 2, Timestamp: since, Input: 512, Output: 1, PromptBytes: 2048, ChunkBytes: 256, ChunkIDs: ids, Endpoint: "e", Status: 200})
	path, out, err := write(t, Options{Admins: []string{a}, BytesPerToken: 2, Bodies: true})
	if err != nil || !strings.Contains(out, "the length of 1 prompts is estimated") {
		t.Fatalf("%v: %s", err, out)
	}
	tr, err := trace.Open(path, trace.ReadOptions{})
	if err != nil || tr.Requests[0].Input != 700 || tr.Requests[1].Input != 1024 {
		t.Errorf("%v: %+v", err, tr.Requests)
	}
}

// TestRecordedWithoutCounts checks prompts without token counts. Their ids use the ratio of the
// replicas' estimates, so the turns of a session share as many ids as their lengths imply.
func TestRecordedWithoutCounts(t *testing.T) {
	const since = 1_800_000_000_000
	turn := func(seq uint64, chunks int) recording.Line {
		ids := make([]uint64, chunks)
		for i := range ids {
			ids[i] = uint64(i + 1)
		}
		return recording.Line{Model: "m", Seq: seq, Timestamp: since, Session: "s", Input: 256 * chunks, Output: 1,
			PromptBytes: 256 * chunks, ChunkBytes: 256, ChunkIDs: ids, Endpoint: "e", Status: 200}
	}
	a := fakeReplica(t, since, turn(1, 8), turn(2, 16))
	path, out, err := write(t, Options{Admins: []string{a}, Bodies: true})
	if err != nil || !strings.Contains(out, "m has 1.00 bytes for each token") || !strings.Contains(out, "the length of 2 prompts is estimated") {
		t.Fatalf("%v: %s", err, out)
	}
	raw, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(raw), `"hash_ids":[2,4,6,8],`) || !strings.Contains(string(raw), `"hash_ids":[2,4,6,8,10,12,14,16],`) {
		t.Errorf("%v: %s", err, raw)
	}
}
