package kube

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/grapevine-epp/grapevine/internal/kubeapi"
)

// defaultPickerPort is the port of v1alpha2 pools that name none.
const defaultPickerPort = 9002

// PickedOptions select the pools to follow. Config and Service are required.
type PickedOptions struct {
	Config    kubeapi.Config
	Namespace string // of the pools and the Service; "": from Config, else default
	Service   string // name of the endpoint picker's Service
	Group     string // of the pools: GroupPool or GroupPoolOld; "": GroupPool
	Agent     string // user agent in the server's logs
	Log       *slog.Logger
}

// PickedPool is an InferencePool whose endpoint picker is the Service.
type PickedPool struct {
	Name    string
	Port    int    // where proxies ask about this pool
	Problem string // why it cannot be served, "" if it can
}

// PickedPools follows the InferencePools of a namespace that refer to a Service as their endpoint
// picker. Safe for concurrent use.
type PickedPools struct {
	o       PickedOptions
	client  *kubeapi.Client
	pools   *kubeapi.Follower[picked]
	changed chan struct{}
}

// picked is the relevant content of an InferencePool.
type picked struct {
	meta
	service string // "": the picker is not a Service
	port    int
}

// FollowPicked follows pools until Close. It does not wait for the server.
func FollowPicked(o PickedOptions) (*PickedPools, error) {
	if o.Service == "" {
		return nil, errors.New("kube: PickedOptions.Service is required")
	}
	if !slices.Contains([]string{"", GroupPool, GroupPoolOld}, o.Group) {
		return nil, errGroup
	}
	o.Namespace = cmp.Or(o.Namespace, o.Config.Namespace, "default")
	o.Agent = cmp.Or(o.Agent, "grapevine")
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	client, err := kubeapi.NewClient(o.Config, o.Agent)
	if err != nil {
		return nil, err
	}
	p := &PickedPools{o: o, client: client, changed: make(chan struct{}, 1)}
	kind := kubeapi.Kind[picked]{
		Resource: poolsV1, Read: readPicked, Key: (*picked).key,
		Same: func(a, b *picked) bool { return a.same(&b.meta) },
	}
	if o.Group == GroupPoolOld {
		kind.Resource = poolsOld
	}
	p.pools = kubeapi.Follow(client, kind, kubeapi.View{Namespace: o.Namespace}, o.Log, func() { soon(p.changed) })
	return p, nil
}

// readPicked reads the reference to the endpoint picker of a pool, of either version.
func readPicked(raw []byte) (picked, error) {
	type ref struct {
		Group string `json:"group"`
		Kind  string `json:"kind"`
		Name  string `json:"name"`
		Port  struct {
			Number uint16 `json:"number"`
		} `json:"port"` // v1
		PortNumber uint16 `json:"portNumber"` // v1alpha2
	}
	var o struct {
		Metadata kubeapi.Meta `json:"metadata"`
		Spec     struct {
			Picker    *ref `json:"endpointPickerRef"`
			Extension *ref `json:"extensionRef"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return picked{}, err
	}
	p, r := picked{meta: metaOf(o.Metadata)}, cmp.Or(o.Spec.Picker, o.Spec.Extension)
	if r == nil || r.Group != "" || r.Kind != "" && r.Kind != "Service" {
		return p, nil
	}
	p.service, p.port = r.Name, int(r.Port.Number)
	if o.Spec.Picker == nil {
		p.port = cmp.Or(int(r.PortNumber), defaultPickerPort)
	}
	return p, nil
}

// Pools returns the pools that refer to the Service, by name. known is false while they have not been
// read, or cannot be read; the list then has the pools that are known.
func (p *PickedPools) Pools() (list []PickedPool, known bool) {
	items := p.pools.Items()
	slices.SortFunc(items, func(a, b *picked) int {
		return cmp.Or(a.created.Compare(b.created), strings.Compare(a.name, b.name))
	})
	ports := map[int]string{} // by the oldest pool
	for _, x := range items {
		if x.service != p.o.Service {
			continue
		}
		one := PickedPool{Name: x.name, Port: x.port}
		switch by := ports[x.port]; {
		case x.port == 0:
			one.Problem = "its endpointPickerRef names no port"
		case by != "":
			one.Problem = fmt.Sprintf("its endpointPickerRef names port %d, which is the port of pool %s: each pool needs its own", x.port, by)
		default:
			ports[x.port] = x.name
		}
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b PickedPool) int { return strings.Compare(a.Name, b.Name) })
	st := p.pools.State()
	return list, st.Listed && st.Err == nil
}

// Changed signals that Pools may return another list.
func (p *PickedPools) Changed() <-chan struct{} { return p.changed }

// Problem returns why the list may be older than the pools, or "".
func (p *PickedPools) Problem() string {
	if err := p.pools.State().Err; err != nil {
		return "InferencePools of namespace " + p.o.Namespace + " cannot be read: " + err.Error()
	}
	return ""
}

// Close stops following.
func (p *PickedPools) Close() {
	p.pools.Close()
	p.client.Close()
}
