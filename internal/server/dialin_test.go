package server

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/events/zmtp"
	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// TestEnginesThatDialIn: an engine connects to the replica, and its stored blocks are indexed for
// that engine. Dial-in is enabled by flags and the endpoints file, or by the configuration alone.
// With a replay port, this includes blocks that were stored before the connection.
func TestEnginesThatDialIn(t *testing.T) {
	t.Run("flags", func(t *testing.T) {
		dialledIn(t, true, func(o *Options, at string, endpoint map[string]any) {
			events := endpoint["events"].(map[string]any)
			delete(events, "port")
			events["dialsIn"] = true
			o.EventsListen = []string{at}
		})
	})
	t.Run("configuration", func(t *testing.T) {
		dialledIn(t, false, func(o *Options, at string, endpoint map[string]any) {
			delete(endpoint, "events")
			o.Config = filepath.Join(t.TempDir(), "epp.yaml")
			write(t, o.Config, fileHead+"plugins:\n- {type: precise-prefix-cache-producer, parameters: {kvEventsConfig: {zmqEndpoint: '"+at+"'}}}\n")
		})
	})
}

// dialledIn has two engines dial in to a replica that set makes listen. Each attempt computes another
// prompt, since a batch that is lost at a change of the stream never comes again. With replay, the
// replica must know the prompt that was computed before they dialled in. Both engines have the same
// address, so the replica recognizes them by the topics of their messages.
func dialledIn(t *testing.T, replay bool, set func(o *Options, at string, endpoint map[string]any)) {
	fleet, o := options(t, fleet.Options{Engines: 2, Engine: sim.Options{Events: &sim.EventOptions{}}})
	list, at := filepath.Join(t.TempDir(), "endpoints.yaml"), "tcp://"+parts.FreeAddress(t)
	changeEvents(t, o.Endpoints, list, func(e map[string]any) { set(&o, at, e) })
	o.Endpoints = list
	s := open(t, o)
	holder := fleet.Engines()[1].Addr()
	compute := func(attempt int) (body string) {
		prompt := strings.Repeat(fmt.Sprintf("%d: a prompt of some length, ", attempt), 40)
		body = fmt.Sprintf(`{"model":%q,"prompt":%q,"max_tokens":1}`, vocab.Name, prompt)
		resp, err := http.Post("http://"+holder+"/v1/completions", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return body
	}
	body := compute(0)
	attempt := 0
	for _, e := range fleet.Engines() {
		dialIn(t, e, at)
	}
	testkit.Eventually(t, func() string {
		attempt++
		if b := compute(attempt); !replay {
			body = b
		}
		code, e := dry(t, s, "?path=/v1/completions", body)
		if code != http.StatusOK || len(e.Candidates) != 2 {
			return fmt.Sprintf("explain: %d, %d candidates", code, len(e.Candidates))
		}
		for _, c := range e.Candidates {
			if held := c.Matched["gpu"] > 0; held != (c.Endpoint == holder) {
				return fmt.Sprintf("%s holds %v", c.Endpoint, c.Matched)
			}
		}
		return ""
	})
}

// dialIn forwards an engine's events to a listening replica. It acts as a publisher that connects
// and names its endpoint in the topic.
func dialIn(t *testing.T, e *sim.Engine, to string) {
	t.Helper()
	bound, _ := e.EventAddrs()
	in, err := zmtp.Dial(t.Context(), "tcp://"+bound[0], zmtp.Options{Handshake: testkit.HangTimeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close() })
	if err := in.Subscribe(""); err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, "subscribed", func() bool { return e.Stats()[0].Events.Subscribers > 0 })
	var out *zmtp.Conn
	testkit.Await(t, "the replica takes its endpoint's connection", func() bool {
		out, err = zmtp.Dial(t.Context(), to, zmtp.Options{Socket: zmtp.PUB, Handshake: testkit.HangTimeout})
		return err == nil
	})
	t.Cleanup(func() { _ = out.Close() })
	topic := []byte("kv@" + e.Addr() + "@" + vocab.Name)
	go func() { // ends with either connection
		for m := (zmtp.Message{}); in.Recv(&m) == nil; {
			if out.Send(topic, m.Frame(1), m.Frame(2)) != nil {
				return
			}
		}
	}()
}
