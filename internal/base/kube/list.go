// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// collection is a kind whose objects are read.
type collection struct {
	path   string
	list   string // media type of a list
	object string // media type of the objects of a watch
	fields string // selects some of them; empty: all
	labels string // does too
	read   func(seen time.Time, raw json.RawMessage) object
}

func membersOf(source string) collection {
	return collection{path: membersPath, list: asJSON, object: asJSON, read: readMember(source)}
}

func nodesOf(source string) collection {
	return collection{path: nodesPath, list: asMetaList, object: asMetadata, read: readNode(source)}
}

// selects adds the selectors to a query.
func (c collection) selects(query url.Values) {
	if c.fields != "" {
		query.Set("fieldSelector", c.fields)
	}
	if c.labels != "" {
		query.Set("labelSelector", c.labels)
	}
}

// The paths of the two collections.
const (
	membersPath = "/apis/tombolo.dev/v1alpha1/members"
	nodesPath   = "/api/v1/nodes"
)

// listing is a consistent list of all objects of a collection.
type listing struct {
	version string
	when    time.Time // by the API server's clock; zero: unknown
	items   []object
	over    bool // there are more than the bound
}

// errPartial is the error of an incomplete list, which proves nothing about missing objects.
var errPartial = errors.New("the list changed while it was read")

// list reads a collection page by page. A page that is too large is requested again in
// smaller ones, so that a large object does not keep the others from being read.
func (c *Client) list(ctx context.Context, what collection, now func() time.Time) (listing, error) {
	var out listing
	size, next := kubePage, ""
	for {
		page, err := c.page(ctx, what, size, next)
		var big *tooLargeError
		switch {
		case errors.As(err, &big) && size > 1:
			size /= 2
			continue
		case Answered(err) == http.StatusGone && next != "":
			return listing{}, fmt.Errorf("%w: %w", errPartial, err)
		case err != nil:
			return listing{}, err
		}
		if next == "" {
			out.when = page.when
		}
		for _, raw := range page.Items { // parsed at once: a page is larger than its statements
			if out.over = len(out.items) == kubeObjects; out.over {
				break
			}
			out.items = append(out.items, what.read(now(), raw))
		}
		out.version = page.Metadata.ResourceVersion
		if next = page.Metadata.Continue; next == "" || out.over {
			return out, nil
		}
	}
}

// tooLargeError is an answer beyond a bound.
type tooLargeError struct{ bound int }

func (e *tooLargeError) Error() string { return errTooLarge(e.bound).Error() }

// page is one piece of a list.
type page struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
		Continue        string `json:"continue"`
	} `json:"metadata"`
	Items []json.RawMessage `json:"items"`
	when  time.Time
}

func (c *Client) page(ctx context.Context, what collection, size int, next string) (page, error) {
	ctx, cancel := context.WithTimeout(ctx, kubeAnswer)
	defer cancel()
	// Without a resourceVersion: the newest state, not that of a cache.
	query := url.Values{"limit": {strconv.Itoa(size)}}
	if next != "" {
		query.Set("continue", next)
	}
	what.selects(query)
	r := call{method: http.MethodGet, path: what.path, query: query, accept: what.list}
	res, err := c.do(ctx, r)
	if err != nil {
		return page{}, err
	}
	defer res.Body.Close()
	if res.ContentLength > kubePageBytes {
		return page{}, away(r, &tooLargeError{kubePageBytes})
	}
	data, err := io.ReadAll(io.LimitReader(res.Body, kubePageBytes+1))
	switch {
	case err != nil:
		return page{}, away(r, err)
	case len(data) > kubePageBytes:
		return page{}, away(r, &tooLargeError{kubePageBytes})
	}
	var out page
	if err := json.Unmarshal(data, &out); err != nil {
		return page{}, away(r, err)
	}
	if out.Metadata.ResourceVersion == "" {
		return page{}, away(r, errors.New("the answer is not a list: it has no resourceVersion"))
	}
	out.when, _ = http.ParseTime(res.Header.Get("Date")) // zero where there is none
	return out, nil
}

// The kinds of watch events other than an added or modified object.
const (
	eventDeleted  = "DELETED"
	eventBookmark = "BOOKMARK"
	eventError    = "ERROR"
)

// event is one line of a watch.
type event struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// watch calls on for each event after version, until the server ends the watch: first with a
// bookmark, when the server has accepted it. It returns the version from which to continue.
func (c *Client) watch(ctx context.Context, what collection, version string, lasts time.Duration,
	on func(kind string, raw json.RawMessage)) (string, error) {
	// The server ends a watch after lasts; one that does not is ended here.
	ctx, cancel := context.WithTimeout(ctx, lasts+kubeAnswer)
	defer cancel()
	query := url.Values{
		"watch": {"1"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {version},
		"timeoutSeconds": {strconv.Itoa(int(lasts / time.Second))},
	}
	what.selects(query)
	r := call{method: http.MethodGet, path: what.path, accept: what.object, query: query}
	res, err := c.do(ctx, r)
	if err != nil {
		return version, err
	}
	defer res.Body.Close()
	on(eventBookmark, nil) // accepted; without changes there may be no event for long
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(make([]byte, 0, 16<<10), kubeObject)
	for lines.Scan() {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return version, away(r, err)
		}
		if e.Type == eventError {
			var status struct {
				Code    int    `json:"code"`
				Message string `json:"message"`
			}
			_ = json.Unmarshal(e.Object, &status) // no code: as any other failure
			return version, refusal(r, status.Code, status.Message)
		}
		var at struct {
			Metadata struct {
				ResourceVersion string `json:"resourceVersion"`
			} `json:"metadata"`
		}
		if err := json.Unmarshal(e.Object, &at); err != nil || at.Metadata.ResourceVersion == "" {
			return version, away(r, errors.New("an event of the watch has no resourceVersion"))
		}
		on(e.Type, e.Object)
		version = at.Metadata.ResourceVersion
	}
	if err := lines.Err(); err != nil {
		return version, away(r, err)
	}
	return version, nil
}
