package engines

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/events"
	"github.com/grapevine-epp/grapevine/internal/cli"
	"github.com/grapevine-epp/grapevine/internal/modelfiles"
)

// Engine is an engine and the models it reports.
type Engine struct {
	Address string // ip:port
	Models  []Model
	Streams []events.Stream // of KV-cache events, once AskStreams was called
}

// Model is one model of an engine.
type Model struct {
	Name   string
	Root   string // source of its weights: a folder or a repository name
	Parent string // of an adapter: the model it belongs to
}

// Tokenizer is a model and the folder of its tokenizer files.
type Tokenizer struct{ Model, Folder string }

// askTime is for how long an engine is waited for.
const askTime = 3 * time.Second

// maxModelList bounds the size of an engine's model list.
const maxModelList = 4 << 20

// Ask queries all engines concurrently for the models they serve. key is sent to engines that
// require one; "" means no key.
func Ask(ctx context.Context, urls []string, key string) ([]Engine, error) {
	found, errs := make([]Engine, len(urls)), make([]error, len(urls))
	var wg sync.WaitGroup
	for i, u := range urls {
		wg.Go(func() { found[i], errs[i] = ask(ctx, u, key) })
	}
	wg.Wait()
	seen := map[string]bool{}
	for i, e := range found {
		if e.Address != "" && seen[e.Address] {
			errs[i] = errors.Join(errs[i], cli.UsageError{Err: fmt.Errorf("--engine %s is given twice", e.Address)})
		}
		seen[e.Address] = true
	}
	return found, errors.Join(errs...)
}

// AskStreams queries all engines concurrently for the addresses of their KV-cache event streams.
// Streams on other hosts are left out.
func AskStreams(ctx context.Context, found []Engine, key string) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	client := events.Keyed(events.Client(askTime), func() string { return key })
	var wg sync.WaitGroup
	for i := range found {
		e := &found[i]
		wg.Go(func() { e.Streams, _ = events.Discover(ctx, client, "http://"+e.Address, nil, events.Trust{}) })
	}
	wg.Wait()
}

// Reachable queries all engines concurrently, as Ask does, and returns the ones that respond.
func Reachable(ctx context.Context, urls []string, key string) (out []Engine) {
	found := make([]Engine, len(urls))
	var wg sync.WaitGroup
	for i, u := range urls {
		wg.Go(func() { found[i], _ = ask(ctx, u, key) })
	}
	wg.Wait()
	return slices.DeleteFunc(found, func(e Engine) bool { return e.Address == "" })
}

func ask(ctx context.Context, raw, key string) (Engine, error) {
	if !strings.Contains(raw, "://") {
		raw = "http://" + raw
	}
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "http" || u.Host == "" {
		return Engine{}, cli.UsageError{Err: fmt.Errorf("--engine %q: want http://HOST:PORT", raw)}
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	address, err := resolve(ctx, u)
	if err != nil {
		return Engine{}, fmt.Errorf("engine %s: %w", raw, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/v1/models", nil)
	if err != nil {
		return Engine{}, err
	}
	resp, err := events.Keyed(events.Client(askTime), func() string { return key }).Do(req)
	if err != nil {
		return Engine{}, fmt.Errorf("engine %s does not answer: %w", raw, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusUnauthorized {
		return Engine{}, fmt.Errorf("engine %s requires a key, or rejects the configured one (--engine-key-file)", raw)
	}
	var list struct {
		Data []struct{ ID, Root, Parent string }
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxModelList)).Decode(&list); err != nil || resp.StatusCode != http.StatusOK || len(list.Data) == 0 {
		return Engine{}, fmt.Errorf("engine %s: /v1/models is not a list of models (%s)", raw, resp.Status)
	}
	e := Engine{Address: address}
	for _, m := range list.Data {
		e.Models = append(e.Models, Model{m.ID, m.Root, m.Parent})
	}
	return e, nil
}

// resolve returns ip:port of a URL.
func resolve(ctx context.Context, u *url.URL) (string, error) {
	port := u.Port()
	if port == "" {
		port = "80"
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", u.Hostname())
	if err != nil {
		return "", err
	}
	for i := range addrs {
		addrs[i] = addrs[i].Unmap()
	}
	if i := slices.IndexFunc(addrs, func(a netip.Addr) bool { return a.Is4() }); i > 0 {
		addrs[0] = addrs[i]
	}
	return net.JoinHostPort(addrs[0].String(), port), nil
}

// EndpointsFile returns an endpoints file for the engines. It is JSON, which is valid YAML.
func EndpointsFile(found []Engine) []byte {
	type entry struct {
		Name    string   `json:"name"`
		Address string   `json:"address"`
		Port    string   `json:"port"`
		Model   []string `json:"model"`
	}
	var file struct {
		Endpoints []entry `json:"endpoints"`
	}
	for i, e := range found {
		host, port, _ := net.SplitHostPort(e.Address)
		one := entry{Name: fmt.Sprint("engine-", i+1), Address: host, Port: port}
		for _, m := range e.Models {
			if m.Parent == "" { // adapters are listed by the engine itself
				one.Model = append(one.Model, m.Name)
			}
		}
		file.Endpoints = append(file.Endpoints, one)
	}
	out, err := json.Marshal(file)
	if err != nil {
		panic(err) // strings always marshal
	}
	return out
}

// Tokenizers returns the models whose tokenizer files are given as NAME=FOLDER or found on this
// machine.
func Tokenizers(flags []string, found []Engine) (list []Tokenizer, err error) {
	given, caches := map[string]bool{}, localCaches()
	for _, m := range flags {
		name, path, ok := strings.Cut(m, "=")
		if !ok || name == "" || path == "" {
			return nil, cli.UsageError{Err: fmt.Errorf("--model %q: want NAME=FOLDER", m)}
		}
		given[name] = true
		list = append(list, Tokenizer{name, path})
	}
	for _, e := range found {
		for _, m := range e.Models {
			if given[m.Name] || m.Parent != "" {
				continue
			}
			given[m.Name] = true
			if path := modelfiles.FindLocal(caches, m.Root, m.Name); path != "" {
				list = append(list, Tokenizer{m.Name, path})
			}
		}
	}
	return list, nil
}

// localCaches returns the caches of this machine that may hold tokenizers.
func localCaches() []string {
	o := modelfiles.FromEnv(os.Getenv)
	return o.LocalCaches()
}
