package events

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

func TestParseSources(t *testing.T) {
	want := "[{0 tcp://10.0.0.7:5557 tcp://10.0.0.7:5600 kv} {1 tcp://10.0.0.9:5558  }]"
	one := `"endpoint":"tcp://*:5557","replay_endpoint":"tcp://0.0.0.0:5600","topic":"kv"`
	two := `"endpoint":"tcp://10.0.0.9:5558","replay_endpoint":null`
	for name, body := range map[string]string{
		"list":    `[{"data_parallel_rank":1,` + two + `},{"data_parallel_rank":0,` + one + `}]`,
		"sources": `{"version":1,"sources":[{"data_parallel_rank":0,` + one + `},{"data_parallel_rank":1,` + two + `}]}`,
		"by rank": `{"1":{` + two + `},"0":{"data_parallel_rank":0,` + one + `},"note":"x"}`,
	} {
		got, err := ParseSources([]byte(body), "10.0.0.7")
		if err != nil || fmt.Sprint(got) != want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	for _, body := range []string{``, `[]`, `{}`, `{"sources":[]}`, `[{"endpoint":"ipc:///tmp/x"}]`, `[{"endpoint":"tcp://*:0"}]`,
		`{"0":{"endpoint":7}}`, `"x"`, `{"sources":"x"}`, `{"sources":{"sources":[{"endpoint":"tcp://h:5000"}]}}`, `[{"endpoint":"tcp://h:1","data_parallel_rank":-1}]`} {
		if got, err := ParseSources([]byte(body), "h"); err == nil {
			t.Errorf("%s: %v", body, got)
		}
	}
}

func TestParseServerInfo(t *testing.T) {
	f := func(body, want string) {
		t.Helper()
		got, err := ParseServerInfo([]byte(body), "fd00::7")
		if err != nil || fmt.Sprint(got) != want {
			t.Errorf("%s: %v, %v", body, got, err)
		}
	}
	f(`{"tp_size":8,"kv_events":{"publisher":"zmq","endpoint_host":"*","endpoint_port_base":5557,"topic":"kv","block_size":1,"dp_size":2}}`,
		"[{0 tcp://[fd00::7]:5557  kv} {1 tcp://[fd00::7]:5558  kv}]")
	f(`{"kv_events":{"endpoint_host":"*","endpoint_port_base":5557,"publishers":[{"dp_rank":3,"endpoint":"tcp://0.0.0.0:6000"}]}}`,
		"[{3 tcp://[fd00::7]:6000  }]")
	for _, body := range []string{`{}`, `{"kv_events":null}`, `{"kv_events":{}}`, `x`, `{"kv_events":{"endpoint_port_base":99999}}`} {
		if got, err := ParseServerInfo([]byte(body), "h"); err == nil {
			t.Errorf("%s: %v", body, got)
		}
	}
}

func TestDiscover(t *testing.T) {
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	defer server.Close()
	configured := PortStreams("127.0.0.1", 5557, 5600, 2, "")
	got, err := Discover(t.Context(), server.Client(), server.URL, configured, Trust{})
	if err == nil || fmt.Sprint(got) != fmt.Sprint(configured) {
		t.Errorf("an engine that does not say: %v, %v", got, err)
	}
	mux.HandleFunc("/server_info", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"kv_events":{"endpoint_host":"*","endpoint_port_base":7000,"dp_size":1}}`))
	})
	got, err = Discover(t.Context(), server.Client(), server.URL, configured, Trust{})
	if err != nil || fmt.Sprint(got) != "[{0 tcp://127.0.0.1:7000 tcp://127.0.0.1:5600 }]" {
		t.Errorf("SGLang: %v, %v", got, err)
	}
	mux.HandleFunc("/kv_event_sources", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`[{"data_parallel_rank":4,"endpoint":"tcp://*:41234","replay_endpoint":"tcp://*:41235","topic":""}]`))
	})
	got, err = Discover(t.Context(), server.Client(), server.URL, configured, Trust{})
	if err != nil || fmt.Sprint(got) != "[{4 tcp://127.0.0.1:41234 tcp://127.0.0.1:41235 }]" {
		t.Errorf("vLLM: %v, %v", got, err)
	}
	if _, err := ParseSources([]byte("[]"), ""); !errors.Is(err, ErrNoSources) {
		t.Errorf("%v", err)
	}
}

// TestDiscoveryIsVerified asks engines that lie.
func TestDiscoveryIsVerified(t *testing.T) {
	many, same := &strings.Builder{}, &strings.Builder{}
	for i := range 3000 {
		fmt.Fprintf(many, `{"data_parallel_rank":%d,"endpoint":"tcp://*:%d"},`, i, 2000+i)
		fmt.Fprintf(same, `{"data_parallel_rank":%d,"endpoint":"tcp://*:5557"},`, i)
	}
	answer := ""
	reached := false
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	defer elsewhere.Close()
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != pathSources {
			w.WriteHeader(http.StatusNotFound)
		} else if answer == "" {
			http.Redirect(w, r, elsewhere.URL, http.StatusFound)
		} else {
			fmt.Fprint(w, answer)
		}
	}))
	defer engine.Close()
	t.Setenv("HTTP_PROXY", elsewhere.URL)
	for _, c := range []struct {
		name, answer string
		trust        Trust
		want         string // "" = nothing is believed
	}{
		{"redirect", "", Trust{}, ""},
		{"another host", `[{"endpoint":"tcp://169.254.169.254:8080"}]`, Trust{}, ""},
		{"another host that is allowed", `[{"endpoint":"tcp://10.0.0.9:8080"}]`, Trust{AnyHost: true}, "[{0 tcp://10.0.0.9:8080  }]"},
		{"another host for replays", `[{"endpoint":"tcp://*:5557","replay_endpoint":"tcp://10.0.0.9:5558"}]`, Trust{}, "[{0 tcp://127.0.0.1:5557  }]"},
		{"port of a system service", `[{"endpoint":"tcp://*:22"}]`, Trust{AnyHost: true}, ""},
		{"one publisher under many ranks", "[" + strings.TrimSuffix(same.String(), ",") + "]", Trust{}, "[{0 tcp://127.0.0.1:5557  }]"},
		{"many ranks", "[" + strings.TrimSuffix(many.String(), ",") + "]", Trust{}, ""},
		{"a long answer", "[" + strings.Repeat(" ", maxDiscovery) + "]", Trust{}, ""},
	} {
		answer = c.answer
		got, err := Discover(t.Context(), Client(5*time.Second), engine.URL, nil, c.trust)
		if text := fmt.Sprint(got); (err != nil) != (c.want == "") || c.want != "" && text != c.want {
			t.Errorf("%s: %.100s, %v", c.name, text, err)
		}
	}
	if reached {
		t.Error("another host was asked")
	}
}

func FuzzDiscovery(f *testing.F) {
	f.Add([]byte(`[{"data_parallel_rank":0,"endpoint":"tcp://*:5557"}]`))
	f.Add([]byte(`{"kv_events":{"endpoint_host":"*","endpoint_port_base":5557,"dp_size":2}}`))
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, body []byte) {
		for _, parse := range []func([]byte, string) ([]Stream, error){ParseSources, ParseServerInfo} {
			streams, err := parse(body, "h")
			if err == nil && len(streams) == 0 {
				t.Error("neither streams nor an error")
			}
			believed, err := Trust{}.among(streams, "h")
			if len(believed) > maxRanks || err == nil && len(believed) == 0 {
				t.Errorf("%d streams are believed, %v", len(believed), err)
			}
			for _, s := range believed {
				if !strings.HasPrefix(s.Events, "tcp://h:") || s.Replay != "" && !strings.HasPrefix(s.Replay, "tcp://h:") {
					t.Errorf("%v is believed", s)
				}
			}
		}
	})
}
