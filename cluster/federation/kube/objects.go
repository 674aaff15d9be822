package kube

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/grapevine-epp/grapevine/internal/kubeapi"
)

// Groups, kinds and names, verbatim.
const (
	groupPool   = "inference.networking.k8s.io"
	groupImport = "inference.networking.x-k8s.io"
	kindImport  = "InferencePoolImport"

	// Annotation requests a pool's export. ClusterSet is its only known value.
	Annotation = "inference.networking.x-k8s.io/export"
	ClusterSet = "ClusterSet"
	// DefaultController is the default controller name of our entries.
	DefaultController = "grapevine-epp.github.io/federation"

	// HubController is the controller name of a hub's entries. It differs from the name of
	// replicas, because the two may have different lists of clusters.
	HubController = "grapevine-epp.github.io/federation-hub"

	noteMade  = "grapevine-epp.github.io/made-by"  // annotation of imports that we created; the value is the controller
	noteGroup = "grapevine-epp.github.io/made-for" // the pool whose replicas created it

	typeExported = "Exported"
	typeAccepted = "Accepted"
	typeDraining = "grapevine-epp.github.io/Draining" // since when this cluster has been withdrawing its export

	maxParents     = 32 // of a pool's status
	maxControllers = 8  // of an import's status
)

var (
	pools   = kubeapi.Resource{Group: groupPool, Version: "v1", Plural: "inferencepools"}
	imports = kubeapi.Resource{Group: groupImport, Version: "v1alpha1", Plural: "inferencepoolimports"}
)

// Name names a pool, and its import in every cluster.
type Name struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// String returns namespace/name.
func (n Name) String() string { return n.Namespace + "/" + n.Name }

func (n Name) compare(o Name) int {
	if c := strings.Compare(n.Namespace, o.Namespace); c != 0 {
		return c
	}
	return strings.Compare(n.Name, o.Name)
}

// condition is a Kubernetes condition.
type condition struct {
	Type       string    `json:"type"`
	Status     string    `json:"status"`
	Reason     string    `json:"reason"`
	Message    string    `json:"message"`
	Generation int64     `json:"observedGeneration,omitempty"`
	Since      time.Time `json:"lastTransitionTime"`
}

// equals reports whether two conditions are equal, except for their time.
func (c condition) equals(o condition) bool {
	c.Since = o.Since
	return c == o && !o.Since.IsZero()
}

func conditionOf(list []condition, kind string) (condition, bool) {
	i := slices.IndexFunc(list, func(c condition) bool { return c.Type == kind })
	if i < 0 {
		return condition{}, false
	}
	return list[i], true
}

// begun sets the transition times of conditions: the time in have if the status is unchanged,
// otherwise now.
func begun(want, have []condition, now time.Time) []condition {
	for i := range want {
		want[i].Since = now
		if old, ok := conditionOf(have, want[i].Type); ok && old.Status == want[i].Status && !old.Since.IsZero() {
			want[i].Since = old.Since
		}
	}
	return want
}

// parentRef is the subject of a pool's status entry.
type parentRef struct {
	Group     string `json:"group"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// parent is our entry of a pool's status.parents.
type parent struct {
	Ref        parentRef   `json:"parentRef"`
	Controller string      `json:"controllerName"`
	Conditions []condition `json:"conditions"`
}

// parentOf returns our pool entry with one condition.
func parentOf(controller string, n Name, c condition) *parent {
	return &parent{
		Ref:        parentRef{Group: groupImport, Kind: kindImport, Namespace: n.Namespace, Name: n.Name},
		Controller: controller, Conditions: []condition{c},
	}
}

// whole reports whether the entry has the pool's reference and an Exported condition.
func (p *parent) whole(controller string, n Name) bool {
	if p == nil || len(p.Conditions) != 1 || p.Conditions[0].Type != typeExported {
		return false
	}
	return p.Ref == parentOf(controller, n, condition{}).Ref && !p.Conditions[0].Since.IsZero()
}

// equals reports whether two entries have the same content.
func (p *parent) equals(o *parent) bool {
	if p == nil || o == nil {
		return p == o
	}
	return p.Ref == o.Ref && p.Controller == o.Controller && slices.EqualFunc(p.Conditions, o.Conditions, condition.equals)
}

// text is the content of an entry, for comparison.
func (p *parent) text() string {
	if p == nil {
		return ""
	}
	return fmt.Sprint(p.Ref, texts(p.Conditions))
}

func (c *control) text() string {
	if c == nil {
		return ""
	}
	return fmt.Sprint(c.Clusters, texts(c.Conditions))
}

func texts(list []condition) (out []string) {
	for _, c := range list {
		out = append(out, fmt.Sprintf("%s %s %s %q %d", c.Type, c.Status, c.Reason, c.Message, c.Generation))
	}
	return out
}

// pool is the relevant content of an InferencePool.
type pool struct {
	Name
	uid, version string
	generation   int64
	asked        bool   // has the annotation
	export       string // its value
	deleted      bool
	parents      []json.RawMessage // status.parents unchanged, including ours
	entry        *parent           // ours; nil: none
	entries      int               // number of entries with our controller's name
}

// import_ is the relevant content of an InferencePoolImport.
type import_ struct {
	Name
	uid, version string
	made         bool     // created by us
	ours         bool     // created by us or by another controller of Grapevine
	group        string   // the pool whose group created it, as namespace/name; "": unknown
	entry        *control // ours; nil: none
	others       int      // controllers other than ours
	owners       []string // UIDs
}

// control is an entry of an import's status.controllers.
type control struct {
	Name       string      `json:"name"`
	Clusters   []exporting `json:"exportingClusters"`
	Conditions []condition `json:"conditions"`
}

// exporting is an exporting cluster.
type exporting struct {
	Name string `json:"name"`
}

func (c *control) equals(o *control) bool {
	if c == nil || o == nil {
		return c == o
	}
	return c.Name == o.Name && slices.Equal(c.Clusters, o.Clusters) && slices.EqualFunc(c.Conditions, o.Conditions, condition.equals)
}

// lists reports whether the entry contains a cluster.
func (c *control) lists(cluster string) bool {
	return c != nil && slices.Contains(c.Clusters, exporting{cluster})
}

// reader decodes objects and recognizes the entries of one controller.
type reader struct{ controller string }

func (r reader) pool(raw []byte) (pool, error) {
	var o struct {
		Metadata kubeapi.Meta `json:"metadata"`
		Status   struct {
			Parents []json.RawMessage `json:"parents"`
		} `json:"status"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return pool{}, err
	}
	m := o.Metadata
	p := pool{Name: Name{m.Namespace, m.Name}, uid: m.UID, version: m.ResourceVersion, generation: m.Generation, deleted: m.Deleted != nil, parents: o.Status.Parents}
	p.export, p.asked = m.Annotations[Annotation]
	for _, raw := range p.parents {
		e, ok := r.ours(raw)
		if !ok {
			continue
		}
		if p.entries++; p.entry == nil {
			p.entry = e
		}
	}
	return p, nil
}

// ours decodes a pool's parents entry with our name. A malformed one is still ours.
func (r reader) ours(raw json.RawMessage) (*parent, bool) {
	var head struct {
		Controller string `json:"controllerName"`
	}
	if json.Unmarshal(raw, &head) != nil || head.Controller != r.controller {
		return nil, false
	}
	var e parent
	if json.Unmarshal(raw, &e) != nil {
		return &parent{Controller: r.controller}, true
	}
	return &e, true
}

// withEntry returns a pool's list of parents with our entry replaced in place, appended, or removed
// if e is nil. Other entries stay byte for byte.
func (r reader) withEntry(list []json.RawMessage, e *parent) ([]json.RawMessage, error) {
	var out []json.RawMessage
	for _, raw := range list {
		if _, ours := r.ours(raw); !ours {
			out = append(out, raw)
			continue
		}
		if e == nil {
			continue
		}
		mine, err := json.Marshal(e)
		if err != nil {
			return nil, err
		}
		out, e = append(out, mine), nil
	}
	if e == nil {
		return out, nil
	}
	if len(out) >= maxParents {
		return nil, errFull
	}
	mine, err := json.Marshal(e)
	return append(out, mine), err
}

var errFull = fmt.Errorf("kube: the pool's status has %d entries of other controllers and no room for ours", maxParents)

func (r reader) imported(raw []byte) (import_, error) {
	var o struct {
		Metadata struct {
			kubeapi.Meta
			Owners []struct {
				UID string `json:"uid"`
			} `json:"ownerReferences"`
		} `json:"metadata"`
		Status struct {
			Controllers []json.RawMessage `json:"controllers"`
		} `json:"status"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return import_{}, err
	}
	m := o.Metadata
	i := import_{Name: Name{m.Namespace, m.Name}, uid: m.UID, version: m.ResourceVersion, made: m.Annotations[noteMade] == r.controller}
	i.ours = i.made || m.Annotations[noteMade] == DefaultController || m.Annotations[noteMade] == HubController
	if i.made {
		i.group = m.Annotations[noteGroup]
	}
	for _, owner := range m.Owners {
		i.owners = append(i.owners, owner.UID)
	}
	for _, raw := range o.Status.Controllers {
		var c control
		if err := json.Unmarshal(raw, &c); c.Name != r.controller {
			i.others++ // including malformed ones, which belong to another controller
		} else if err != nil {
			i.entry = &control{Name: r.controller}
		} else {
			i.entry = &c
		}
	}
	return i, nil
}

// is reports whether p exists and has that UID.
func (p *pool) is(uid string) bool { return p != nil && p.uid == uid }

func (p *pool) key() (name, version string)    { return p.Name.String(), p.version }
func (i *import_) key() (name, version string) { return i.Name.String(), i.version }
