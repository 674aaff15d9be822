package record

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/server/recording"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

var errDisk = errors.New("disk full")

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errDisk }

// idle is a replica that accepts a recording and sends no lines.
func idle(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(recording.Since, strconv.Itoa(1))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// TestFailureEndsAll checks that a recording that fails at one replica, or cannot be written, ends
// the recordings of all others.
func TestFailureEndsAll(t *testing.T) {
	f := func(what, want string, o Options) {
		t.Helper()
		ended := make(chan error, 1)
		go func() {
			_, err := Run(t.Context(), o)
			ended <- err
		}()
		select {
		case err := <-ended:
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", what, err, want)
			}
		case <-time.After(testkit.HangTimeout):
			t.Errorf("%s: the recording does not end", what)
		}
	}
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(recording.Since, strconv.Itoa(1))
		w.(http.Flusher).Flush()
		_, _ = w.Write([]byte("{\"seq\":"))
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(broken.Close)
	f("broken", "broke off", Options{Admins: []string{idle(t), strings.TrimPrefix(broken.URL, "http://")}, Out: new(strings.Builder)})

	lines := make([]recording.Line, 60)
	for i := range lines {
		lines[i] = recording.Line{Model: strings.Repeat("m", 200), Seq: uint64(i + 1), Input: 1, PromptBytes: 4, Status: 200}
	}
	f("full disk", errDisk.Error(), Options{Admins: []string{idle(t), fakeReplica(t, 1, lines...)}, Bodies: true, BytesPerToken: 4, Out: fullDisk{}})
}
