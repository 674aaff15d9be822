//go:build kube

package deploy_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/template"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/grapevine-epp/grapevine/internal/kubeapi"
	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/internal/testkit/kubekit"
	"github.com/grapevine-epp/grapevine/internal/testkit/podkit"
)

// llmService is the part of an LLMInferenceService, or of a preset, that concerns the scheduler.
type llmService struct {
	Spec struct {
		Router struct {
			Scheduler struct {
				Replicas int `json:"replicas"`
				Config   struct {
					Inline json.RawMessage `json:"inline"`
				} `json:"config"`
				Pool struct {
					Spec json.RawMessage `json:"spec"`
				} `json:"pool"`
				Template map[string]any `json:"template"`
			} `json:"scheduler"`
		} `json:"router"`
	} `json:"spec"`
}

// kserveRights are the rights that KServe's controller gives to a scheduler.
const kserveRights = `apiVersion: v1
kind: ServiceAccount
metadata: {name: qwen-epp-sa}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: qwen-epp-role}
rules:
- {verbs: [get, list, watch], apiGroups: [""], resources: [pods]}
- {verbs: [get, list, watch], apiGroups: [inference.networking.k8s.io, inference.networking.x-k8s.io], resources: [inferencepools, inferenceobjectives, inferencemodels]}
- {verbs: [get, list, watch], apiGroups: [inference.networking.x-k8s.io], resources: [inferencemodelrewrites, inferencepoolimports]}
- {verbs: [get, list, watch], apiGroups: [discovery.k8s.io], resources: [endpointslices]}
- {verbs: [get, list, watch, create, update, patch, delete], apiGroups: [coordination.k8s.io], resources: [leases]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: qwen-epp-rb}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: qwen-epp-role}
subjects: [{kind: ServiceAccount, name: qwen-epp-sa}]
---
apiVersion: v1
kind: Service
metadata: {name: qwen-epp-service}
spec:
  selector: {app.kubernetes.io/name: qwen, app.kubernetes.io/component: llminferenceservice-router-scheduler}
  ports: [{name: grpc, port: 9002, targetPort: grpc}]
`

// testKServe runs the scheduler of examples/kserve.yaml as KServe's controller starts it: with its
// preset, its rights, its pool and its arguments, with and without TLS.
func testKServe(t *testing.T, c *kubekit.Cluster, binary string) {
	for name, secure := range map[string]bool{"TLS": true, "Plaintext": false} {
		t.Run(name, func(t *testing.T) {
			namespace := "kserve-" + strings.ToLower(name)
			c.Namespace(namespace)
			c.Apply(kserveRights, "-n", namespace)
			cert, key := selfSigned(t)
			secret, err := json.Marshal(map[string]any{
				"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "qwen-kserve-self-signed-certs"},
				"stringData": map[string]string{"tls.crt": string(cert), "tls.key": string(key)},
			})
			if err != nil {
				t.Fatal(err)
			}
			c.Apply(string(secret), "-n", namespace)
			c.Kubectl("create", "secret", "generic", "qwen-grapevine", "-n", namespace, "--from-literal=key="+newKey(1))
			address := kserveEngine(t, c, namespace, secure)
			scheduler := kserveScheduler(t, c, namespace, secure)
			k := podkit.Open(t, c, imagesOf(t, binary))
			var pods []*podkit.Pod
			for _, id := range []string{"0", "1"} {
				p := k.Manifest(namespace, scheduler(id))
				pods = append(pods, p)
				c.Create(kubeapi.Resource{Group: "discovery.k8s.io", Version: "v1", Plural: "endpointslices"}, namespace, fmt.Sprintf(
					`{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":%q,"labels":{"kubernetes.io/service-name":"qwen-epp-service"}},"addressType":"IPv4",
					"endpoints":[{"addresses":[%q],"conditions":{"ready":false,"serving":false}}],"ports":[{"name":"grpc","port":9002}]}`, p.Name, p.IP))
			}
			p := pods[0]
			pods[1].WaitReady()
			servesOneEndpoint(t, c, p)
			testkit.Eventually(t, func() string {
				st, text := statusIn(p, "main")
				if len(st.Endpoints) != 1 || len(st.Members) != 2 {
					return fmt.Sprintf("%d endpoints, %d members:\n%s", len(st.Endpoints), len(st.Members), text)
				}
				if e := st.Endpoints[0]; e.Address != address || e.GaugesError != "" || e.GaugeAgeS < 0 || len(e.Streams) != 1 {
					return "gauges or events of the engine are not read:\n" + text
				}
				if !strings.Contains(p.Log("main"), "models of an endpoint changed") {
					return "the engine's models are not read"
				}
				return ""
			})
			if text := p.Log("main"); strings.Contains(text, `"level":"ERROR"`) || strings.Contains(text, "missing right") && !strings.Contains(text, "continuing without them") {
				t.Errorf("faults in the log:\n%s", text)
			}
		})
	}
}

// kserveEngine starts an engine with the labels of KServe's workloads.
func kserveEngine(t *testing.T, c *kubekit.Cluster, namespace string, secure bool) (address string) {
	t.Helper()
	const labels = `{"app.kubernetes.io/name":"qwen","app.kubernetes.io/part-of":"llminferenceservice","kserve.io/component":"workload"}`
	ip := podkit.NodeAddress(t)
	o := sim.Options{Addr: ip + ":8000", Speed: 20, Events: &sim.EventOptions{Addr: ip + ":5557", Replay: ip + ":5558"}}
	if secure {
		o.Addr = ip + ":8080"
	}
	e, err := sim.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	if secure {
		l, err := net.Listen("tcp", ip+":8000")
		if err != nil {
			t.Fatal(err)
		}
		s := &httptest.Server{Listener: l, Config: &http.Server{
			Handler:  httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: e.Addr()}),
			ErrorLog: log.New(io.Discard, "", 0), // of clients without TLS
		}}
		s.StartTLS()
		t.Cleanup(s.Close)
	}
	c.Pod(namespace, kubekit.Pod{Name: "qwen-kserve-0", IP: ip, Labels: labels})
	return ip + ":8000"
}

// kserveScheduler creates the pool of the example, and returns a function that returns the scheduler's
// pods, both as KServe's controller does.
func kserveScheduler(t *testing.T, c *kubekit.Cluster, namespace string, secure bool) (pod func(id string) string) {
	t.Helper()
	var service, preset llmService
	example := strings.NewReplacer("REGISTRY", "registry.example", "TAG", "v1").Replace(readFile(t, "examples/kserve.yaml"))
	if err := yaml.Unmarshal([]byte(example), &service); err != nil {
		t.Fatal(err)
	}
	fill, err := template.New("preset").Funcs(template.FuncMap{"ChildName": func(parent, suffix string) string { return parent + suffix }}).
		Parse(readFile(t, filepath.Join(publishedFiles(t), "presets", "kserve.yaml")))
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := fill.Execute(&text, map[string]any{
		"ObjectMeta": map[string]string{"Name": "qwen", "Namespace": namespace}, "GlobalConfig": map[string]bool{"EnableTLS": secure},
	}); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text.Bytes(), &preset); err != nil {
		t.Fatal(err)
	}
	apply := func(object map[string]any) {
		b, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		c.Apply(string(b), "-n", namespace)
	}
	apply(map[string]any{
		"apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool", "metadata": map[string]any{"name": "qwen-inference-pool"},
		"spec": preset.Spec.Router.Scheduler.Pool.Spec,
	})

	from, own := preset.Spec.Router.Scheduler.Template, service.Spec.Router.Scheduler
	var containers []any
	for _, x := range from["containers"].([]any) {
		x := x.(map[string]any)
		if x["name"] == "tokenizer" {
			continue // removed: the configuration has no precise-prefix-cache-scorer
		}
		for _, y := range own.Template["containers"].([]any) {
			if y := y.(map[string]any); y["name"] == x["name"] {
				mounts, _ := x["volumeMounts"].([]any)
				maps.Copy(x, y)
				x["volumeMounts"] = append(mounts, y["volumeMounts"].([]any)...)
			}
		}
		args, _ := x["args"].([]any)
		if own.Replicas > 1 {
			args = append(args, "--ha-enable-leader-election")
		}
		x["args"] = append(args, "--config-text", string(own.Config.Inline))
		containers = append(containers, x)
	}
	if len(containers) != 1 {
		t.Fatalf("%d containers after merging the example into the preset, want 1", len(containers))
	}
	from["containers"], from["serviceAccountName"] = containers, "qwen-epp-sa"
	from["volumes"] = append(from["volumes"].([]any), own.Template["volumes"].([]any)...)
	if command := containers[0].(map[string]any)["command"].([]any); command[0] != "/app/epp" || slices.Contains(command, any("")) == secure {
		t.Fatalf("the preset's command is %q", command)
	}
	return func(id string) string {
		b, err := json.Marshal(map[string]any{
			"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "qwen-kserve-router-scheduler-" + id, "labels": map[string]any{
				"app.kubernetes.io/name": "qwen", "app.kubernetes.io/component": "llminferenceservice-router-scheduler",
			}},
			"spec": from,
		})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
}

// selfSigned returns a certificate and its key, as cert-manager would write them.
func selfSigned(t *testing.T) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"qwen-epp-service"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(90 * 24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, of, of, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	if _, err := tls.X509KeyPair(cert, key); err != nil {
		t.Fatal(err)
	}
	return cert, key
}
