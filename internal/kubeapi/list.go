package kubeapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Limits of reading.
const (
	pageSize  = 500
	maxObject = 8 << 20 // etcd's default limit is 1.5 MiB
	maxPage   = 1 << 30 // total size of a page's objects
	maxItems  = 100_000 // per type
	minWatch  = 5 * time.Minute
)

// Meta is an object's relevant metadata.
type Meta struct {
	Name            string            `json:"name"`
	Namespace       string            `json:"namespace"`
	UID             string            `json:"uid"`
	ResourceVersion string            `json:"resourceVersion"`
	Generation      int64             `json:"generation"`
	Created         time.Time         `json:"creationTimestamp"`
	Deleted         *time.Time        `json:"deletionTimestamp"`
	Labels          map[string]string `json:"labels"`
	Annotations     map[string]string `json:"annotations"`
}

// listMeta is a list's metadata.
type listMeta struct {
	ResourceVersion string `json:"resourceVersion"`
	Continue        string `json:"continue"`
}

var (
	errTooMany = errors.New("kubeapi: too many objects")
	errEnded   = errors.New("kubeapi: the watch ended")
)

// list reads all selected objects page by page and passes each to add. It returns the version from
// which a watch continues.
func (c *Client) list(ctx context.Context, k call, add func(json.RawMessage) error) (version string, err error) {
	k.verb, k.method = "list", http.MethodGet
	query := k.query
	for next, count := "", 0; ; {
		k.query = url.Values{"limit": {strconv.Itoa(pageSize)}}
		for name, v := range query {
			k.query[name] = v
		}
		if next != "" {
			k.query.Set("continue", next)
		}
		m, err := c.page(ctx, k, func(raw json.RawMessage) error {
			if count++; count > maxItems {
				return errTooMany
			}
			return add(raw)
		})
		if err != nil {
			return "", err
		}
		if m.Continue == "" {
			return m.ResourceVersion, nil
		}
		next = m.Continue
	}
}

// Exists reports whether an object is in the server's list. It requires only the permission to list.
func (c *Client) Exists(ctx context.Context, r Resource, namespace, name string) (found bool, err error) {
	k := call{resource: r, namespace: namespace, query: url.Values{"fieldSelector": {"metadata.name=" + name}}}
	_, err = c.list(ctx, k, func(raw json.RawMessage) error {
		var o struct {
			Metadata Meta `json:"metadata"`
		}
		err := json.Unmarshal(raw, &o)
		found = found || err != nil || o.Metadata.Name == name
		return nil
	})
	return found, err
}

func (c *Client) page(ctx context.Context, k call, add func(json.RawMessage) error) (m listMeta, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	body, err := c.open(ctx, k)
	if err != nil {
		return m, err
	}
	defer body.Close()
	if m, err = readList(body, add); err != nil {
		return m, fmt.Errorf("%s %s: %w", k.verb, k.resource, err)
	}
	return m, nil
}

// readList decodes a list object by object.
func readList(r io.Reader, add func(json.RawMessage) error) (m listMeta, err error) {
	d := json.NewDecoder(io.LimitReader(r, maxPage))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return m, errors.Join(errors.New("the response is not a list"), err)
	}
	for d.More() {
		field, err := d.Token()
		if err != nil {
			return m, err
		}
		switch field {
		case "metadata":
			err = d.Decode(&m)
		case "items":
			err = readItems(d, add)
		default:
			var skip json.RawMessage
			err = d.Decode(&skip)
		}
		if err != nil {
			return m, err
		}
	}
	_, err = d.Token() // the closing brace: without it the list is incomplete
	return m, err
}

func readItems(d *json.Decoder, add func(json.RawMessage) error) error {
	t, err := d.Token()
	if err != nil || t == nil { // null is an empty list
		return err
	}
	if t != json.Delim('[') {
		return errors.New("items is not a list")
	}
	for d.More() {
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return err
		}
		if err := add(raw); err != nil {
			return err
		}
	}
	_, err = d.Token()
	return err
}

// event is one line of a watch.
type event struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// watch reads events from a version on and passes each to take until the watch ends, which always
// returns an error: errEnded for a normal end. It calls opened once the server has accepted the
// watch.
func (c *Client) watch(ctx context.Context, k call, version string, opened func(), take func(event) error) error {
	k.verb, k.method = "watch", http.MethodGet
	length := minWatch + rand.N(minWatch)
	query := url.Values{
		"watch": {"1"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {version},
		"timeoutSeconds": {strconv.Itoa(int(length.Seconds()))},
	}
	for name, v := range k.query {
		query[name] = v
	}
	k.query = query
	ctx, cancel := context.WithTimeout(ctx, length+callTimeout)
	defer cancel()
	body, err := c.open(ctx, k)
	if err != nil {
		return err
	}
	defer body.Close()
	opened()
	err = readWatch(body, func(e event) error {
		if e.Type == "ERROR" {
			return k.answered(errorOf(0, e.Object))
		}
		return take(e)
	})
	if errors.Is(err, io.EOF) {
		return errEnded
	}
	return err
}

// readWatch reads the lines of a watch. It always returns an error, io.EOF at the end.
func readWatch(r io.Reader, take func(event) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 16<<10), maxObject)
	for lines.Scan() {
		if len(lines.Bytes()) == 0 {
			continue
		}
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("watch event: %w", err)
		}
		if err := take(e); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return io.EOF
}
