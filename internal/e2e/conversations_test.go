package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/faults"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// kept is a client's view of a response that an engine stores.
type kept struct {
	heard
	id, state string
}

// respond creates a response, or continues one.
func (w *town) respond(model, previous, more string) kept {
	w.t.Helper()
	if previous != "" {
		more += fmt.Sprintf(`,"previous_response_id":%q`, previous)
	}
	return w.read(http.MethodPost, "/v1/responses", fmt.Sprintf(`{"model":%q,"input":"hello","max_output_tokens":4%s}`, model, more))
}

func (w *town) read(method, path, body string) kept {
	w.t.Helper()
	out := kept{heard: w.send(method, path, body)}
	text := out.body
	if i := strings.Index(text, `data: {"response"`); i >= 0 { // the first event
		text, _, _ = strings.Cut(text[i+len("data: "):], "\n")
	}
	var p struct {
		ID, Status string
		Response   struct{ ID, Status string }
	}
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		w.t.Errorf("%s: %v: %.200s", path, err, out.body)
	}
	out.id, out.state = p.ID+p.Response.ID, p.Status+p.Response.Status
	return out
}

// TestConversations checks that requests that continue, read or cancel a stored response reach the
// engine that stores it: through any replica, streamed or not, for any model.
func TestConversations(t *testing.T) {
	const replicas = 3
	var join []string
	for range replicas {
		join = append(join, parts.FreeAddress(t))
	}
	opened := 0
	w := &town{rig: open(t, rigOptions{
		engines: 6, each: func(i int, o *sim.Options) { o.Model = base(i % 2) }, replicas: replicas,
		server: func(o *server.Options) {
			o.Cluster = server.ClusterOptions{
				Mode: "gossip", Share: "partitioned", Keys: [][]byte{bytes.Repeat([]byte{7}, 32)}, Bind: join[opened], StreamBind: parts.FreeAddress(t), Join: join,
			}
			opened++
		},
	})}
	testkit.Await(t, "the replicas know each other and the lists", func() bool {
		for i, s := range w.servers {
			if st := s.Status(); st.State != "ready" || len(st.Members) != replicas || w.metric(i, "grapevine_models_unknown_endpoints") > 0 {
				return false
			}
		}
		return true
	})
	var users sync.WaitGroup
	for user := range 4 {
		users.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(user), 9))
			for talk := range 10 {
				model, at, last := base(talk%2), "", ""
				for turn := range 6 {
					more := [...]string{"", `,"stream":true`, `,"background":true`}[rng.IntN(3)]
					r := w.respond(model, last, more)
					if r.status != http.StatusOK || r.id == "" || at != "" && r.engine != at {
						t.Errorf("turn %d, %s: of %s, which is kept by %q: %+v", turn, more, last, at, r)
						break
					}
					at, last = r.engine, r.id
					testkit.Await(t, "it is complete", func() bool {
						r = w.read(http.MethodGet, "/v1/responses/"+last+"?include=all", "")
						return r.state == "completed" || r.status != http.StatusOK
					})
					if r.status != http.StatusOK || r.engine != at {
						t.Errorf("turn %d: read from %q: %+v", turn, at, r)
						break
					}
				}
			}
		})
	}
	users.Wait()
	w.settle()
	for i := range w.servers {
		if n := w.metric(i, `grapevine_picker_conversations_total{result="unknown"}`) + w.metric(i, `grapevine_picker_conversations_total{result="gone"}`); n != 0 {
			t.Errorf("replica %d did not know %v responses", i, n)
		}
	}

	// A response in progress can be cancelled.
	w.hang(faults.HangEngine)
	r := w.respond(base(0), "", `,"background":true`)
	if c := w.read(http.MethodPost, "/v1/responses/"+r.id+"/cancel", ""); c.status != http.StatusOK || c.state != "cancelled" || c.engine != r.engine {
		t.Errorf("cancelled: %+v, begun: %+v", c, r)
	}
	w.hang(faults.HangNone)

	// For an unknown response, an engine answers with its error.
	for _, path := range []string{"/v1/responses/resp_nobody", "/v1/responses/resp_nobody/cancel"} {
		method := http.MethodGet
		if strings.HasSuffix(path, "cancel") {
			method = http.MethodPost
		}
		if out := w.send(method, path, ""); out.status != http.StatusNotFound || out.engine == "" {
			t.Errorf("%s: %+v", path, out)
		}
	}
}
