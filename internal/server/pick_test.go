package server

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// TestPickAndMetricsOfOthers: a proxy without external processing requests a pick, sends the
// request and reports its end. In between the request counts as in flight, and the metrics under
// other pickers' names count it too.
func TestPickAndMetricsOfOthers(t *testing.T) {
	_, o := options(t, fleet.Options{Engines: 2})
	o.PickListen, o.PickEnds = "127.0.0.1:0", "127.0.0.1:0"
	o.MetricsCompat, o.MetricsPool, o.PlaceUnknown = true, "llama", true
	s := open(t, o)
	testkit.Await(t, "ready", func() bool { return s.Status().State == "ready" })
	post := func(path, body string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://"+s.pick.Addr().String()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Original-URI", "/v1/completions")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp
	}
	inFlight := func() (n int64) {
		for _, e := range s.Status().Endpoints {
			n += e.InFlight
		}
		return n
	}
	resp := post("/v1/pick", `{"model":"m","prompt":"hello"}`)
	at := resp.Header.Get("x-gateway-destination-endpoint")
	if resp.StatusCode != http.StatusOK || s.pool.Snapshot().Lookup(at) == nil {
		t.Fatalf("%s, destination %q", resp.Status, at)
	}
	if n := inFlight(); n != 1 {
		t.Errorf("%d in flight", n)
	}
	if resp := post("/v1/pick/"+resp.Header.Get("x-pick-id")+"/end?status=200", ""); resp.StatusCode != http.StatusNoContent {
		t.Errorf("end: %s", resp.Status)
	}
	if n := inFlight(); n != 0 {
		t.Errorf("%d in flight after the end", n)
	}
	id := post("/v1/pick", `{"model":"m","prompt":"hello"}`).Header.Get("x-pick-id")
	log, err := (&net.Dialer{}).DialContext(t.Context(), "udp", s.pick.EndsAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if _, err := log.Write([]byte("pick=" + id + " status=200 served=" + at + " end=OK")); err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, "the pick that a line of a log names is no longer in flight", func() bool { return inFlight() == 0 })
	page, err := http.Get("http://" + s.AdminAddr().String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer page.Body.Close()
	text, err := io.ReadAll(page.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`llm_d_epp_request_total{fairness_id="default-flow",model_name="m",priority="0",target_model_name="m"} 2`,
		`llm_d_epp_ready_endpoints{name="llama"} 2`, `inference_pool_ready_pods{name="llama"} 2`, `grapevine_pick_total{result="picked"} 2`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the metrics page lacks %s", want)
		}
	}
}
