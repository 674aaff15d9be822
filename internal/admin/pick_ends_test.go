package admin

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

const someID = "0123456789abcdef01234567"

func TestParseEnd(t *testing.T) {
	for _, c := range []struct {
		line string
		want pickEnd
		ok   bool
	}{
		{`<190>Nov 23 02:00:00 host gv: pick=` + someID + ` status=200 served=10.0.0.1:80 end=OK`, pickEnd{someID, 200, "10.0.0.1:80", true}, true},
		{`<190>Nov 23 02:00:00 host gv: pick=` + someID + ` status=499 served=[fd00::1]:80 end=`, pickEnd{someID, 0, "[fd00::1]:80", false}, true},
		{`<134>Nov 23 02:00:00 haproxy[7]: pick=` + someID + ` status=200 served=10.0.0.1:80 end=--`, pickEnd{someID, 200, "10.0.0.1:80", true}, true},
		{`pick=` + someID + ` status=-1 served=-:- end=CH`, pickEnd{id: someID}, true},
		{`pick=` + someID, pickEnd{id: someID}, true},
		{`{"level":"info","request":{"uri":"/"},"status":201,"resp_headers":{"X-Pick-Id":["` + someID + `"]}}` + "\n", pickEnd{someID, 201, "", true}, true},
		{`{"status":0,"resp_headers":{"X-Pick-Id":["` + someID + `"]}}`, pickEnd{id: someID}, true},
		{`{"status":200,"resp_headers":{}}`, pickEnd{status: 200, complete: true}, false},
		{`{"status":200,"resp_headers":{"X-Pick-Id":["` + someID, pickEnd{}, false},
		{`pick= status=200`, pickEnd{status: 200}, false},
		{`pick=0123456789ABCDEF01234567`, pickEnd{id: "0123456789ABCDEF01234567"}, false},
		{`GET / HTTP/1.1`, pickEnd{}, false},
		{``, pickEnd{}, false},
	} {
		if got, ok := parseEnd([]byte(c.line)); got != c.want || ok != c.ok {
			t.Errorf("%q: %+v %v, want %+v %v", c.line, got, ok, c.want, c.ok)
		}
	}
}

// FuzzParseEnd: any accepted ID has the form of a pick's ID.
func FuzzParseEnd(f *testing.F) {
	f.Add([]byte(`pick=` + someID + ` status=200 served=10.0.0.1:80 end=OK`))
	f.Add([]byte(`{"status":201,"resp_headers":{"X-Pick-Id":["` + someID + `"]}}`))
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, line []byte) {
		e, ok := parseEnd(line)
		if ok && !validID(e.id) || e.status < 0 || e.status > 599 || e.complete && e.status == 0 {
			t.Errorf("%+v %v", e, ok)
		}
	})
}

// TestPickEnds: an access log line ends its pick, over UDP and over a Unix socket, including one
// left by an earlier process.
func TestPickEnds(t *testing.T) {
	dir := t.TempDir()
	for _, bind := range []string{"127.0.0.1:0", "unix:" + filepath.Join(dir, "ends"), "unix:" + filepath.Join(dir, "ends")} {
		c := &fixedChooser{}
		p, err := OpenPick(PickOptions{Bind: "127.0.0.1:0", Ends: bind, Chooser: c})
		if err != nil {
			t.Fatal(err)
		}
		id := call(p.Handler(), "POST", "/v1/pick", completion).Header().Get(headerPickID)
		conn, err := (&net.Dialer{}).DialContext(context.Background(), p.EndsAddr().Network(), p.EndsAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{"pick=" + someID + " status=200", "something else", "pick=" + id + " status=200 served=10.0.0.2:80 end=OK"} {
			if _, err := conn.Write([]byte(line)); err != nil {
				t.Fatal(err)
			}
		}
		conn.Close()
		for deadline := time.Now().Add(testkit.HangTimeout); len(c.ended()) == 0 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		}
		if got := c.ended(); len(got) != 1 || got[0].Status != 200 || !got[0].Complete || got[0].Served != "10.0.0.2:80" {
			t.Errorf("%s: ended %+v", bind, got)
		}
		if w := call(p.Handler(), "POST", "/v1/pick/"+id+"/end", ""); w.Code != http.StatusNotFound {
			t.Errorf("%s: a second end: %d", bind, w.Code)
		}
		if err := p.Close(); err != nil {
			t.Errorf("%s: %v", bind, err)
		}
	}
	if _, err := OpenPick(PickOptions{Bind: "127.0.0.1:0", Ends: "nowhere", Chooser: &fixedChooser{}}); err == nil || !strings.Contains(err.Error(), "pick: listen on nowhere") {
		t.Errorf("a bad address: %v", err)
	}
}
