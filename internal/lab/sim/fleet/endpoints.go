package fleet

import (
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"sigs.k8s.io/yaml"

	"github.com/grapevine-epp/grapevine/internal/lab/sim"
)

// Endpoint is one entry of an endpoints file.
type Endpoint struct {
	Name      string            `json:"name"`
	Namespace string            `json:"namespace"`
	Address   string            `json:"address"`
	Port      int               `json:"port"`
	Labels    map[string]string `json:"labels,omitempty"`
	Model     string            `json:"model"`
	Events    *EndpointEvents   `json:"events,omitempty"`
}

// EndpointEvents contains the ports on which an endpoint publishes its KV events.
type EndpointEvents struct {
	Port       int    `json:"port"`                 // PUB socket of rank 0
	ReplayPort int    `json:"replayPort,omitempty"` // replay socket of rank 0
	Topic      string `json:"topic,omitempty"`
	Ranks      int    `json:"ranks,omitempty"` // when more than one
}

// Endpoints describes the fleet as an endpoints file does. Its model and
// events fields are Grapevine's additions to the format.
func (f *Fleet) Endpoints() []Endpoint {
	var list []Endpoint
	for i, e := range f.engines {
		ep := f.endpoint(e)
		if f.opt.Describe != nil {
			f.opt.Describe(i, &ep)
		}
		list = append(list, ep)
	}
	return list
}

func (f *Fleet) endpoint(e *sim.Engine) Endpoint {
	host, port := splitAddr(e.Addr())
	o := e.Options()
	labels := maps.Clone(f.opt.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[sim.LabelEngineType] = "vllm"
	ep := Endpoint{Name: e.Name(), Namespace: f.opt.Namespace, Address: host, Port: port, Labels: labels, Model: o.Model}
	if pub, replay := e.EventAddrs(); len(pub) > 0 {
		ep.Events = &EndpointEvents{Topic: o.Events.Topic}
		_, ep.Events.Port = splitAddr(pub[0])
		if replay[0] != "" {
			_, ep.Events.ReplayPort = splitAddr(replay[0])
		}
		if o.Ranks > 1 {
			ep.Events.Ranks = o.Ranks
		}
	}
	return ep
}

// splitAddr splits a bound address, which is always host:port.
func splitAddr(addr string) (host string, port int) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return addr, 0
	}
	port, err = strconv.Atoi(text)
	if err != nil {
		return host, 0
	}
	return host, port
}

// WriteEndpoints writes the endpoints file, replacing one that is there in one
// step. It leaves engines out that are named.
func (f *Fleet) WriteEndpoints(path string, without ...string) error {
	list := slices.DeleteFunc(f.Endpoints(), func(e Endpoint) bool { return slices.Contains(without, e.Name) })
	raw, err := yaml.Marshal(map[string]any{"endpoints": list})
	if err != nil {
		return fmt.Errorf("fleet: endpoints: %w", err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".endpoints-*")
	if err != nil {
		return fmt.Errorf("fleet: endpoints: %w", err)
	}
	_, err = tmp.Write(raw)
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
		return fmt.Errorf("fleet: endpoints: %w", err)
	}
	return nil
}
