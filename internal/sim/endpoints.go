package sim

import (
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"sigs.k8s.io/yaml"
)

// Endpoint is one entry of an endpoints file.
type Endpoint struct {
	Name      string            `json:"name"`
	Namespace string            `json:"namespace"`
	Address   string            `json:"address"`
	Port      int               `json:"port"`
	Labels    map[string]string `json:"labels,omitempty"`
}

// Endpoints describes the fleet as an endpoints file does. Labels tell where
// the KV events are.
func (f *Fleet) Endpoints() []Endpoint {
	var list []Endpoint
	for _, e := range f.engines {
		list = append(list, f.endpoint(e))
	}
	return list
}

func (f *Fleet) endpoint(e *Engine) Endpoint {
	host, port := splitAddr(e.Addr())
	labels := maps.Clone(f.opt.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[LabelEngineType] = "vllm"
	labels[LabelModel] = e.opt.Model
	if pub, replay := e.EventAddrs(); len(pub) > 0 {
		_, n := splitAddr(pub[0])
		labels[LabelEventPort] = strconv.Itoa(n)
		if replay[0] != "" {
			_, n = splitAddr(replay[0])
			labels[LabelReplayPort] = strconv.Itoa(n)
		}
		if t := e.opt.Events.Topic; t != "" {
			labels[LabelEventTopic] = t
		}
	}
	if e.opt.Ranks > 1 {
		labels[LabelRanks] = strconv.Itoa(e.opt.Ranks)
	}
	return Endpoint{Name: e.Name(), Namespace: f.opt.Namespace, Address: host, Port: port, Labels: labels}
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
// step.
func (f *Fleet) WriteEndpoints(path string) error {
	raw, err := yaml.Marshal(map[string]any{"endpoints": f.Endpoints()})
	if err != nil {
		return fmt.Errorf("sim: endpoints: %w", err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".endpoints-*")
	if err != nil {
		return fmt.Errorf("sim: endpoints: %w", err)
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
		return fmt.Errorf("sim: endpoints: %w", err)
	}
	return nil
}
