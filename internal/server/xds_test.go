package server

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/extproc/xds"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// An Envoy that is configured only with two replicas' addresses follows replicas as they die, drain
// and start, and no request fails.
func TestEnvoyFollowsReplicas(t *testing.T) {
	g := newGroupWith(t, 2, 10000, group{share: "auto", xds: XDSOptions{Listen: "127.0.0.1:0", Listener: "127.0.0.1:0"}})
	var at []string
	for _, s := range g.replicas {
		at = append(at, s.XDSAddr().String())
	}
	conf, err := xds.Bootstrap{Admin: "127.0.0.1:0", Replicas: at}.Render()
	if err != nil {
		t.Fatal(err)
	}
	e := testkit.StartEnvoy(t, conf)
	pickers := func(want ...*Server) func() string {
		return func() string {
			var list []string
			for _, s := range want {
				list = append(list, s.ExtProcAddr().String())
			}
			slices.Sort(list)
			for _, s := range want {
				if got := s.xds.replicas(s.ExtProcAddr().String()); !slices.Equal(got, list) {
					return fmt.Sprintf("%s tells of %v, not %v", s.o.Name, got, list)
				}
				if v := s.xds.srv.Version(); v != want[0].xds.srv.Version() {
					return "versions differ"
				}
			}
			return ""
		}
	}
	testkit.Eventually(g.t, pickers(g.replicas...))
	url := "http://" + e.Addr("inference")
	decided := func() (n uint64) {
		for _, s := range g.replicas {
			n += s.chooser.decided.Load()
		}
		return n
	}
	testkit.Eventually(g.t, func() string {
		if code := post(t, url); code != http.StatusOK || decided() == 0 {
			return fmt.Sprint(code)
		}
		return ""
	})
	steady := func(n int) {
		t.Helper()
		for range n {
			if code := post(t, url); code != http.StatusOK {
				t.Fatalf("answer %d", code)
			}
		}
	}
	testkit.Eventually(g.t, func() string {
		before := decided()
		steady(20)
		if n := decided() - before; n != 20 {
			return fmt.Sprintf("%d of 20 requests", n)
		}
		return ""
	})
	dead := g.replicas[0]
	g.stop(dead)
	steady(20)
	testkit.Eventually(g.t, pickers(g.replicas[1]))
	testkit.Eventually(g.t, func() string {
		before := g.replicas[1].chooser.decided.Load()
		steady(20)
		if n := g.replicas[1].chooser.decided.Load() - before; n != 20 {
			return fmt.Sprintf("%d of 20 requests", n)
		}
		return ""
	})
	late := g.add()
	g.ready(late)
	testkit.Eventually(g.t, pickers(g.replicas[1], late))
	testkit.Eventually(g.t, func() string {
		steady(4)
		if late.chooser.decided.Load() == 0 {
			return "not yet"
		}
		return ""
	})
}

func post(t *testing.T, url string) int {
	t.Helper()
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	body := fmt.Sprintf(`{"model":%q,"prompt":"a prompt that is asked again","max_tokens":2}`, vocab.Name)
	resp, err := client.Post(url+"/v1/completions", "application/json", strings.NewReader(body))
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}
