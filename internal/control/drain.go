// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"net/http"
	"net/url"
)

// Drained reports which instances a request to drain, or to end that, was for.
type Drained struct {
	Instances []string `json:"instances"`
}

// draining are the handlers that withdraw prefixes and let them be announced.
func draining(mux *http.ServeMux, source Source, guard func(what string, handle http.HandlerFunc) http.HandlerFunc) {
	for path, on := range map[string]bool{pathDrain: true, pathUndrain: false} {
		mux.HandleFunc("POST "+path, guard("drain anything", func(w http.ResponseWriter, r *http.Request) {
			drained, err := source.Drain(r.URL.Query().Get("instance"), on)
			respond(w, drained, err, http.StatusInternalServerError)
		}))
	}
}

// Drain has the daemon withdraw what it announces for an instance, or for all if
// the name is empty; with on false it ends that.
func (c *Client) Drain(ctx context.Context, instance string, on bool) (drained Drained, err error) {
	path := pathUndrain
	if on {
		path = pathDrain
	}
	query := url.Values{}
	if instance != "" {
		query.Set("instance", instance)
	}
	err = c.ask(ctx, http.MethodPost, path, query, &drained)
	return drained, err
}
