package kubeapi

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fakeServer answers requests without a network, in virtual time.
type fakeServer struct {
	mu     sync.Mutex
	asked  int
	answer func(r *http.Request) (code int, body string, hold bool)
}

func (f *fakeServer) RoundTrip(r *http.Request) (*http.Response, error) {
	f.mu.Lock()
	f.asked++
	answer := f.answer
	f.mu.Unlock()
	code, body, hold := answer(r)
	if code == 0 {
		return nil, errors.New("connection refused")
	}
	read, write := io.Pipe()
	go func() {
		_, _ = io.WriteString(write, body)
		if hold {
			<-r.Context().Done()
		}
		write.Close()
	}()
	context.AfterFunc(r.Context(), func() { read.CloseWithError(r.Context().Err()) })
	return &http.Response{StatusCode: code, Header: http.Header{}, Body: read, Request: r}, nil
}

func (f *fakeServer) set(answer func(*http.Request) (int, string, bool)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked, f.answer = 0, answer
}

func (f *fakeServer) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

func watching(r *http.Request) bool { return r.URL.Query().Get("watch") != "" }

func serving(version, value string) func(*http.Request) (int, string, bool) {
	return func(r *http.Request) (int, string, bool) {
		if watching(r) {
			return 200, "", true
		}
		return 200, listOf(version, "", object("x", version, value)), false
	}
}

// TestHours simulates hours with three faulty servers: one is unreachable, one ends every watch
// immediately, and one rejects every version that it has just returned. Known objects stay, the
// request rate is moderate, and ten seconds after recovery everything is up to date.
func TestHours(t *testing.T) {
	for _, x := range []struct {
		name   string
		answer func(*http.Request) (int, string, bool)
		most   int // requests per hour
	}{
		{"away", func(*http.Request) (int, string, bool) { return 0, "", false }, 3600 / 7 * 2},
		{"restored from a copy, and then away", func(r *http.Request) (int, string, bool) {
			if watching(r) {
				return 504, `{"kind":"Status","code":504,"reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge"}]}}`, false
			}
			return 0, "", false
		}, 3600 / 7 * 2},
		{"410 for the place just listed", func(r *http.Request) (int, string, bool) {
			if watching(r) {
				return 200, line("ERROR", `{"kind":"Status","code":410,"reason":"Expired","message":"too old resource version"}`), false
			}
			return 200, listOf("7", "", object("x", "7", "1")), false
		}, 3600 / 7 * 3},
		{"watches that end at once", func(r *http.Request) (int, string, bool) {
			if watching(r) {
				return 200, "", false
			}
			return 200, listOf("7", "", object("x", "7", "1")), false
		}, 3600 / 7 * 2},
		{"no right", func(*http.Request) (int, string, bool) {
			return 403, `{"kind":"Status","code":403,"reason":"Forbidden"}`, false
		}, 3600 / 20 * 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := &fakeServer{answer: serving("5", "1")}
			client := &Client{config: Config{Server: "http://server"}, http: &http.Client{Transport: f}, agent: "test"}
			things := Follow(client, things, View{Namespace: "ns"}, slog.New(slog.DiscardHandler), func() {})
			defer things.Close()
			time.Sleep(time.Second)
			if values(things) != "x=1" {
				t.Fatalf("%s: %s at first", x.name, values(things))
			}
			f.set(x.answer)
			time.Sleep(11 * time.Minute) // longer than any watch
			f.set(x.answer)
			time.Sleep(time.Hour)
			if n := f.count(); n > x.most || n < 10 {
				t.Errorf("%s: asked %d times in an hour, want 10 to %d", x.name, n, x.most)
			}
			if values(things) != "x=1" {
				t.Errorf("%s: objects after an hour: %q", x.name, values(things))
			}
			f.set(func(r *http.Request) (int, string, bool) {
				if watching(r) && !strings.Contains(r.URL.RawQuery, "resourceVersion=9") {
					return 410, `{"kind":"Status","code":410,"reason":"Expired"}`, false
				}
				return serving("9", "2")(r)
			})
			wait := 10 * time.Second
			if x.name == "no right" {
				wait = 27 * time.Second
			}
			time.Sleep(wait)
			if s := things.State(); values(things) != "x=2" || s.Err != nil {
				t.Errorf("%s: objects are %q %v after recovery, %v", x.name, values(things), wait, s.Err)
			}
		})
	}
}

// TestForbiddenWatch: without the permission to watch, objects are listed every few seconds, so that
// changes appear. The state has the missing permission but no error, and watching resumes once it
// is granted.
func TestForbiddenWatch(t *testing.T) {
	polled := func(version, value string) func(*http.Request) (int, string, bool) {
		return func(r *http.Request) (int, string, bool) {
			if watching(r) {
				return 403, `{"kind":"Status","code":403,"reason":"Forbidden"}`, false
			}
			return 200, listOf(version, "", object("x", version, value)), false
		}
	}
	for name, first := range map[string]func(*http.Request) (int, string, bool){"from the start": polled("1", "1"), "revoked": serving("1", "1")} {
		synctest.Test(t, func(t *testing.T) {
			f := &fakeServer{answer: first}
			client := &Client{config: Config{Server: "http://server"}, http: &http.Client{Transport: f}, agent: "test"}
			things := Follow(client, things, View{Namespace: "ns"}, slog.New(slog.DiscardHandler), func() {})
			defer things.Close()
			time.Sleep(time.Second)
			f.set(polled("2", "2"))
			time.Sleep(11 * time.Minute) // longer than any watch
			for i := range 3 {
				version := strconv.Itoa(3 + i)
				f.set(polled(version, version))
				time.Sleep(6 * time.Second)
				s := things.State()
				if got := values(things); got != "x="+version || s.Err != nil || time.Since(s.Read) > 6*time.Second {
					t.Errorf("%s: objects are %q 6 s after a change to %s, state %+v", name, got, version, s)
				}
				if s.Watch == nil || !strings.Contains(s.Watch.Error(), `resources ["things"] verbs ["watch"]`) {
					t.Errorf("%s: missing permission: %v", name, s.Watch)
				}
			}
			f.set(polled("7", "7"))
			time.Sleep(time.Hour)
			if n := f.count(); n > 3600/5*2 {
				t.Errorf("%s: asked %d times in an hour, want at most %d", name, n, 3600/5*2)
			}
			f.set(serving("8", "8"))
			time.Sleep(6 * time.Second)
			if s := things.State(); s.Watch != nil || s.Err != nil || values(things) != "x=8" {
				t.Errorf("%s: after the grant: objects %q, state %+v", name, values(things), s)
			}
		})
	}
}
