package kubekit

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/grapevine-epp/grapevine/internal/kubeapi"
)

// trusting skips certificate verification for the administrator's requests, because the server
// generates its own certificate at startup.
var trusting = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, MaxIdleConnsPerHost: 16} //nolint:gosec // on loopback, in a test

const (
	asJSON  = "application/json"
	asMerge = "application/merge-patch+json"
)

// Create writes a new object, JSON, and fails the test when that is refused.
func (c *Cluster) Create(r kubeapi.Resource, namespace, object string) {
	c.tb.Helper()
	if code, answer := c.Do(http.MethodPost, r.Path(namespace, ""), strings.NewReader(object), asJSON); code != http.StatusCreated {
		c.tb.Fatalf("create %s: %d %s\n%s", r, code, answer, object)
	}
}

// Patch merges a patch, JSON, into an object.
func (c *Cluster) Patch(r kubeapi.Resource, namespace, name, patch string) {
	c.tb.Helper()
	c.patch(r.Path(namespace, name), patch)
}

// PatchStatus merges a patch, JSON, into an object's status.
func (c *Cluster) PatchStatus(r kubeapi.Resource, namespace, name, patch string) {
	c.tb.Helper()
	c.patch(r.Path(namespace, name)+"/status", patch)
}

func (c *Cluster) patch(path, patch string) {
	c.tb.Helper()
	if code, answer := c.Do(http.MethodPatch, path, strings.NewReader(patch), asMerge); code != http.StatusOK {
		c.tb.Fatalf("patch %s: %d %s\n%s", path, code, answer, patch)
	}
}

// Delete deletes an object at once.
func (c *Cluster) Delete(r kubeapi.Resource, namespace, name string) {
	c.tb.Helper()
	if code, answer := c.Do(http.MethodDelete, r.Path(namespace, name)+"?gracePeriodSeconds=0", nil, asJSON); code != http.StatusOK {
		c.tb.Fatalf("delete %s/%s: %d %s", r, name, code, answer)
	}
}

// Namespace creates a namespace.
func (c *Cluster) Namespace(name string) {
	c.tb.Helper()
	c.Create(kubeapi.Resource{Version: "v1", Plural: "namespaces"}, "", fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
}

// Pods are the core pods.
var Pods = kubeapi.Resource{Version: "v1", Plural: "pods"}

// Pod describes a pod that a test writes.
type Pod struct {
	Name, IP    string
	Labels      string // JSON object, "" for none
	Annotations string // JSON object, "" for none
	Ports       []int  // of its one container
	Finalizer   bool   // stays, terminating, once it is deleted
}

// Pod creates a pod and makes it ready, as a kubelet would.
func (c *Cluster) Pod(namespace string, p Pod) {
	c.tb.Helper()
	object := func(s string) string {
		if s == "" {
			return "{}"
		}
		return s
	}
	var ports []string
	for _, n := range p.Ports {
		ports = append(ports, fmt.Sprintf(`{"containerPort":%d}`, n))
	}
	finalizers := ""
	if p.Finalizer {
		finalizers = `,"finalizers":["example.org/stay"]`
	}
	c.Create(Pods, namespace, fmt.Sprintf(`{"metadata":{"name":%q,"labels":%s,"annotations":%s%s},
		"spec":{"nodeName":"node","containers":[{"name":"engine","image":"engine","ports":[%s]}]}}`,
		p.Name, object(p.Labels), object(p.Annotations), finalizers, strings.Join(ports, ",")))
	c.Ready(namespace, p.Name, p.IP, true)
}

// Ready writes a pod's address and whether it is ready.
func (c *Cluster) Ready(namespace, name, ip string, ready bool) {
	c.tb.Helper()
	status := "False"
	if ready {
		status = "True"
	}
	c.PatchStatus(Pods, namespace, name, fmt.Sprintf(`{"status":{"phase":"Running","podIP":%q,"podIPs":[{"ip":%q}],
		"conditions":[{"type":"Ready","status":%q}]}}`, ip, ip, status))
}

// Restarts writes how often the pod's container was started again.
func (c *Cluster) Restarts(namespace, name string, count int) {
	c.tb.Helper()
	c.PatchStatus(Pods, namespace, name, fmt.Sprintf(`{"status":{"containerStatuses":[{"name":"engine","restartCount":%d,"image":"engine","imageID":"e","ready":true,"state":{"running":{}}}]}}`, count))
}

// Grant gives a user the permissions in rules, each "verbs group resources", within a namespace. It
// replaces an earlier grant of the same name.
func (c *Cluster) Grant(namespace, name, user string, rules ...string) {
	c.tb.Helper()
	var list []string
	for _, r := range rules {
		f := strings.Fields(r)
		group := f[1]
		if group == "core" {
			group = ""
		}
		quote := func(s string) string { return `"` + strings.ReplaceAll(s, ",", `","`) + `"` }
		list = append(list, fmt.Sprintf(`{"verbs":[%s],"apiGroups":[%q],"resources":[%s]}`, quote(f[0]), group, quote(f[2])))
	}
	c.Apply(fmt.Sprintf(`{"apiVersion":"v1","kind":"List","items":[
		{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":%[1]q,"namespace":%[2]q},"rules":[%[3]s]},
		{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"name":%[1]q,"namespace":%[2]q},
		 "roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":%[1]q},"subjects":[{"kind":"User","name":%[4]q,"apiGroup":"rbac.authorization.k8s.io"}]}]}`,
		name, namespace, strings.Join(list, ","), user))
}

// Apply applies manifests, YAML or JSON.
func (c *Cluster) Apply(manifests string, args ...string) string {
	c.tb.Helper()
	out, err := c.Command("kubectl", manifests, append([]string{"apply", "--server-side", "--force-conflicts", "-f", "-"}, args...)...)
	if err != nil {
		c.tb.Fatalf("kubectl apply: %v\n%s\n%s", err, out, manifests)
	}
	return out
}

// Accounts are the service accounts.
var Accounts = kubeapi.Resource{Version: "v1", Plural: "serviceaccounts"}

// Account creates a service account and returns its configuration. For Grant it is the user
// system:serviceaccount:NAMESPACE:NAME.
func (c *Cluster) Account(namespace, name string) kubeapi.Config {
	c.tb.Helper()
	c.Create(Accounts, namespace, fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
	code, answer := c.Do(http.MethodPost, Accounts.Path(namespace, name)+"/token", strings.NewReader(`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}`), asJSON)
	var request struct {
		Status struct {
			Token string `json:"token"`
		} `json:"status"`
	}
	if err := json.Unmarshal([]byte(answer), &request); err != nil || code != http.StatusCreated {
		c.tb.Fatalf("token of service account %s/%s: %d %s", namespace, name, code, answer)
	}
	k := c.As("admin")
	k.Token = request.Status.Token
	return k
}

// CollectGarbage deletes the objects of a namespace whose owners, all of them service accounts, are gone.
// The controller manager does so in a real cluster.
func (c *Cluster) CollectGarbage(r kubeapi.Resource, namespace string) {
	c.tb.Helper()
	type meta struct {
		Metadata struct {
			Name   string `json:"name"`
			UID    string `json:"uid"`
			Owners []struct {
				Kind string `json:"kind"`
				UID  string `json:"uid"`
			} `json:"ownerReferences"`
		} `json:"metadata"`
	}
	list := func(r kubeapi.Resource) (all struct{ Items []meta }) {
		code, answer := c.Do(http.MethodGet, r.Path(namespace, ""), nil, asJSON)
		if err := json.Unmarshal([]byte(answer), &all); err != nil || code != http.StatusOK {
			c.tb.Fatalf("list %s: %d %s", r, code, answer)
		}
		return all
	}
	objects, alive := list(r), map[string]bool{}
	for _, a := range list(Accounts).Items {
		alive[a.Metadata.UID] = true
	}
	for _, o := range objects.Items {
		keep := len(o.Metadata.Owners) == 0
		for _, owner := range o.Metadata.Owners {
			keep = keep || owner.Kind != "ServiceAccount" || alive[owner.UID]
		}
		if !keep {
			body := fmt.Sprintf(`{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":%q}}`, o.Metadata.UID)
			c.Do(http.MethodDelete, r.Path(namespace, o.Metadata.Name), strings.NewReader(body), asJSON)
		}
	}
}
