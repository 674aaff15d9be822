package testkit

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

const greeting = `
admin: { address: { socket_address: { address: 127.0.0.1, port_value: 0 } } }
static_resources:
  listeners:
  - name: front
    address: { socket_address: { address: 127.0.0.1, port_value: 0 } }
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: front
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes: [{ match: { prefix: "/" }, direct_response: { status: 200, body: { inline_string: hello } } }]
          http_filters:
          - name: envoy.filters.http.router
            typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
`

func TestStart(t *testing.T) {
	e := StartEnvoy(t, []byte(greeting), "--log-level", "info")
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + e.Addr("front"))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || string(body) != "hello" {
		t.Errorf("answer %q, %v", body, err)
	}
	if n := e.Stats(t, "http.front.")["http.front.downstream_rq_2xx"]; n != 1 {
		t.Errorf("%d answers counted, want 1", n)
	}
	if e.Addr("nobody") != "" {
		t.Error("an unknown listener has an address")
	}
	if !strings.Contains(e.Log(), "starting main dispatch loop") {
		t.Errorf("log:\n%s", e.Log())
	}
	e.Stop()
	e.Stop()
	if _, err := client.Get(e.Admin()); err == nil {
		t.Error("Envoy still answers after Stop")
	}
}
