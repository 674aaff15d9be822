//go:build kube

package kube

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/internal/testkit/kubekit"
)

// TestSuite runs the conformance suite with Grapevine as the picker of all its pools, and checks
// that pools with FailOpen are served without a picker.
func TestSuite(t *testing.T) {
	suite := os.Getenv("GIE_SUITE")
	if _, err := os.Stat(suite); err != nil {
		t.Fatalf("the suite is missing (%v): make test-gie builds it and sets GIE_SUITE", err)
	}
	binary := filepath.Join(testkit.Build(t, "grapevine"), "grapevine")
	c := kubekit.Start(t, "gateway", "inference")
	// Bind the rights of the suite's Role to the service account of its pods.
	c.Namespace("inference-conformance-app-backend")
	for _, object := range []string{
		`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"name":"epp"},"subjects":[{"kind":"User","name":"epp","apiGroup":"rbac.authorization.k8s.io"}],"roleRef":{"kind":"Role","name":"inference-model-reader","apiGroup":"rbac.authorization.k8s.io"}}`,
	} {
		c.Create(bindings, "inference-conformance-app-backend", object)
	}
	c.Create(classes, "", `{"apiVersion":"gateway.networking.k8s.io/v1","kind":"GatewayClass","metadata":{"name":"stub"},"spec":{"controllerName":"`+controller+`"}}`)
	s := startStub(t, c, binary, startDataplane(t))

	t.Run("Suite", func(t *testing.T) {
		program := conformance{path: suite, kubeconfig: c.Kubeconfig("admin"), only: os.Getenv("GIE_ONLY"), log: t.Logf}
		if err := program.run(t.Context()); err != nil {
			t.Error(err)
			s.tell()
		}
	})
	t.Run("FailOpen", func(t *testing.T) { failOpen(t, s) })
}

// failOpen kills the pickers. The pool with FailOpen is served and the other one is not. The
// suite's own test keeps the picker of the pool alive.
func failOpen(t *testing.T, s *stub) {
	const namespace = "inference-conformance-app-backend"
	for path, pool := range map[string]string{"/open": "secondary-inference-pool", "/closed": "primary-inference-pool"} {
		s.c.Create(routes, namespace, fmt.Sprintf(`{"apiVersion":"gateway.networking.k8s.io/v1","kind":"HTTPRoute","metadata":{"name":%q},"spec":{
			"parentRefs":[{"name":"conformance-primary","namespace":"inference-conformance-infra"}],"hostnames":["failing.example.com"],
			"rules":[{"matches":[{"path":{"type":"PathPrefix","value":%q}}],"backendRefs":[{"group":"inference.networking.k8s.io","kind":"InferencePool","name":%q}]}]}}`, pool, path, pool))
	}
	ask := func(path string) (status int, body string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.1.1"+path, strings.NewReader(`{"model":"m","prompt":"x"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = "failing.example.com"
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text)
	}
	for _, path := range []string{"/open", "/closed"} {
		s.c.Until(path+" is served with its picker", func() bool { code, _ := ask(path); return code == http.StatusOK })
	}
	for _, name := range []string{"primary", "secondary"} {
		p := s.pods[namespace+"/"+name+"-app-endpoint-picker-0"]
		if err := p.picker.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-p.exited
	}
	// While the Service has endpoints, Envoy asks a dead picker. In full-duplex mode a body that
	// was already sent to it is lost, and the answer is 500.
	s.c.Until("the gateway serves without a picker", func() bool { code, _ := ask("/open"); return code == http.StatusOK })
	for range 10 {
		if code, body := ask("/open"); code != http.StatusOK || !strings.Contains(body, `"pod":"secondary-inference-model-server`) {
			t.Errorf("FailOpen without its picker: %d %s", code, body)
		}
		if code, body := ask("/closed"); code < 500 {
			t.Errorf("FailClose without its picker: %d %s", code, body)
		}
	}
}

// tell logs the output of the pickers.
func (s *stub) tell() {
	for id, p := range s.pods {
		if p.picker != nil {
			s.t.Logf("%s:\n%s", id, p.log.String())
		}
	}
}

func sortedByName(list []any) []any {
	if list == nil {
		return []any{}
	}
	slices.SortFunc(list, func(a, b any) int {
		return cmp.Compare(a.(map[string]any)["name"].(string), b.(map[string]any)["name"].(string))
	})
	return list
}
