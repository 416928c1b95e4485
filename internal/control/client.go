// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
)

// maxAnswer bounds what a client reads, in bytes.
const maxAnswer = 64 << 20

// Client asks a running isthmus.
type Client struct {
	path string
	http http.Client
}

// NewClient returns a client of the daemon that listens on the socket. It
// connects for each question.
func NewClient(path string) *Client {
	var dialer net.Dialer
	return &Client{path: path, http: http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, // or each Client leaves a connection, and its memory, to the daemon
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", path)
		},
	}}}
}

// Status asks for the state of all instances.
func (c *Client) Status(ctx context.Context) (status Status, err error) {
	err = c.ask(ctx, http.MethodGet, pathStatus, nil, &status)
	return status, err
}

// Peers asks for at most limit peers of an instance. The error is ErrNoInstance
// for one that keeps none.
func (c *Client) Peers(ctx context.Context, instance string, limit int) (list PeerList, err error) {
	query := url.Values{"instance": {instance}, "limit": {strconv.Itoa(limit)}}
	err = c.ask(ctx, http.MethodGet, pathPeers, query, &list)
	return list, err
}

// Reload has the daemon read its configuration again. Faults of the file are
// returned as [config.Errors].
func (c *Client) Reload(ctx context.Context) (reloaded Reloaded, err error) {
	err = c.ask(ctx, http.MethodPost, pathReload, nil, &reloaded)
	return reloaded, err
}

// ask reads an answer whole.
func (c *Client) ask(ctx context.Context, method, path string, query url.Values, into any) error {
	response, err := c.open(ctx, method, path, query)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := c.read(response)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("the answer of isthmus on %s is not understood (%w): is it another version?", c.path, err)
	}
	return nil
}

// open asks, and returns the answer if it is no error.
func (c *Client) open(ctx context.Context, method, path string, query url.Values) (*http.Response, error) {
	address := url.URL{Scheme: "http", Host: "isthmus", Path: path, RawQuery: query.Encode()}
	request, err := http.NewRequestWithContext(ctx, method, address.String(), nil)
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, c.explain(err)
	}
	if response.StatusCode == http.StatusOK {
		return response, nil
	}
	defer response.Body.Close()
	body, err := c.read(response)
	if err != nil {
		return nil, err
	}
	var answered problem
	switch err := json.Unmarshal(body, &answered); {
	case err == nil && len(answered.Faults) > 0:
		return nil, fromFaults(answered.Faults)
	case err == nil && answered.Error != "":
		return nil, &refusal{text: answered.Error, status: response.StatusCode}
	}
	return nil, fmt.Errorf("isthmus on %s answered %s: is it another version?", c.path, response.Status)
}

func (c *Client) read(response *http.Response) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("the answer of isthmus on %s broke off: %w", c.path, err)
	}
	return body, nil
}

// refusal is an error in the daemon's own words.
type refusal struct {
	text   string
	status int
}

func (r *refusal) Error() string { return r.text }

// Is makes ErrNoInstance of a name that the daemon does not know.
func (r *refusal) Is(target error) bool {
	return target == ErrNoInstance && r.status == http.StatusNotFound
}

// closedIdle ends the error of net/http, which has no name, for a connection that was closed
// before the question was sent.
const closedIdle = "server closed idle connection"

// explain says in one sentence why the daemon could not be asked.
func (c *Client) explain(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no isthmus is running with the control socket %s: start one with isthmus run, or name the socket with --socket", c.path)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE),
		strings.HasSuffix(err.Error(), closedIdle):
		return fmt.Errorf("isthmus on %s hung up: it has stopped, or this user has %d connections to it, or others have too many: try again", c.path, maxOfUser)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("this user may not open the control socket %s: use sudo, or join the group that owns it", c.path)
	}
	return fmt.Errorf("cannot ask isthmus on %s: %w", c.path, err)
}
