//go:build hostile

package hostile

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/grapevine-epp/grapevine/extproc/envoyconf"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// poison is a model whose template never ends.
const poison = "poison"

// rig holds the target of the attacks and the path of honest requests.
type rig struct {
	t                    *testing.T
	program              string
	dir                  string
	people               *people
	prober               *people // queries the program directly
	stirred              int     // changes of the list of endpoints
	pick                 string
	xds                  string
	peers                string           // listener for streams of other replicas
	liar                 *httptest.Server // answers of the hostile engine
	says                 sync.Map         // func(http.ResponseWriter) by path
	abroad               string           // folder of the federation's files
	federation, memberAt string           // federation listeners of the program and of the hostile cluster
	canary               *canary
	smuggled             int64 // requests that reached an engine with headers that only pickers may set
	cage                 *cage
	envoy                *testkit.Envoy
	url                  string // of the attacked Envoy
	front                string // its address
	pickAt               string // ext_proc listener for attackers
}

// canary is a host to which no request may be routed.
type canary struct {
	*httptest.Server
	asked atomic.Int64
}

func openRig(t *testing.T) *rig {
	r := &rig{t: t, dir: t.TempDir(), canary: &canary{}}
	r.program = filepath.Join(testkit.Build(t, "grapevine"), "grapevine")
	r.canary.Server = httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { r.canary.asked.Add(1) }))
	t.Cleanup(r.canary.Close)
	r.liar = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if say, ok := r.says.Load(q.URL.Path); ok {
			say.(func(http.ResponseWriter))(w)
		}
	}))
	t.Cleanup(r.liar.Close)
	r.people, r.prober = openPeople(t), openPeople(t, precedence()...)
	list := r.writeEndpoints(r.addr(r.people.Liar))
	model, bad := filepath.Join(r.dir, "model"), filepath.Join(r.dir, poison)
	for _, dir := range []string{model, bad} {
		if err := vocab.New().WriteModel(dir); err != nil {
			t.Fatal(err)
		}
	}
	template := `{% set l = messages[0].content.split(' ') %}{% for i in range(99999) %}{% for j in range(99999) %}{% set z = l[::-1] + l %}{% endfor %}{% endfor %}`
	if err := os.WriteFile(filepath.Join(bad, "chat_template.jinja"), []byte(template), 0o600); err != nil {
		t.Fatal(err)
	}
	r.pick, r.xds = parts.FreeAddress(t), parts.FreeAddress(t)
	r.peers = parts.FreeAddress(t)
	r.cage = lockUp(t, r.program, "--cluster", "gossip", "--cluster-bind", parts.FreeAddress(t), "--cluster-stream-bind", r.peers, "--endpoints", list, "--model", vocab.Name+"="+model, "--model", poison+"="+bad, "--unknown-model", "place", "--pick-listen", r.pick, "--xds-listen", r.xds, "--federation-config", r.federate())
	r.openEnvoy()
	giveWay(t)
	return r
}

// lie replaces the hostile engine's answers for a path until truth is called.
func (r *rig) lie(path string, say func(http.ResponseWriter)) {
	r.says.Store(path, say)
	r.people.tell(order{Do: "lie", Path: path, Liar: r.liar.URL}, &struct{}{})
}

// truth restores the engine's answers for a path.
func (r *rig) truth(path string) {
	r.people.tell(order{Do: "truth", Path: path}, &struct{}{})
}

// stir changes the list of endpoints without changing addresses, so engines are queried again.
func (r *rig) stir() {
	r.stirred++
	r.writeEndpoints(r.addr(r.people.Liar))
}

// writeEndpoints writes the endpoints file with the engines and additional addresses.
func (r *rig) writeEndpoints(more ...string) string {
	var list []fleet.Endpoint
	if r.people != nil {
		list = append(list, r.people.List...)
	}
	for i, at := range more {
		host, port, err := net.SplitHostPort(at)
		if err != nil {
			r.t.Fatal(err)
		}
		n, _ := strconv.Atoi(port)
		list = append(list, fleet.Endpoint{Name: fmt.Sprintf("more-%d-%d", r.stirred, i), Namespace: "default", Address: host, Port: n, Model: vocab.Name})
	}
	b, err := yaml.Marshal(map[string]any{"endpoints": list})
	if err != nil {
		r.t.Fatal(err)
	}
	path := filepath.Join(r.dir, "endpoints.yaml")
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		r.t.Fatal(err)
	}
	return path
}

func (r *rig) addr(u string) string { return strings.TrimPrefix(u, "http://") }

func (r *rig) openEnvoy() {
	r.envoy = r.startEnvoy(r.cage.extproc)
	r.front, r.pickAt = r.envoy.Addr("inference"), r.cage.extproc
	r.url = "http://" + r.front
}

// startEnvoy starts an Envoy for the picker at an address.
func (r *rig) startEnvoy(picker string) *testkit.Envoy {
	addrs := append([]string{r.addr(r.people.Liar)}, r.people.Engines...)
	conf, err := envoyconf.Render(envoyconf.Params{Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", ExtProc: []string{picker}, Endpoints: addrs, MessageTimeout: 30 * time.Second, NetworkTimeout: testkit.NetworkTimeout})
	if err != nil {
		r.t.Fatal(err)
	}
	return testkit.StartEnvoy(r.t, conf)
}

// post sends a body through Envoy and returns the status, or 0 without an answer.
func (r *rig) post(path string, body []byte, header ...string) int {
	status, _ := post(r.url+path, body, header...)
	return status
}
