// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
)

const (
	pathAsk   = "/v1/ask"
	pathOrder = "/v1/order"
)

// Question is for one instance: a question about its tables, or an order to change
// something.
type Question struct {
	// Role is the role of the instance, and Instance its name; without a name the only
	// one of the role is meant.
	Role, Instance string
	// What is asked or ordered, and its arguments.
	What      string
	Arguments json.RawMessage
}

// values are the question as it stands in an address.
func (q *Question) values() url.Values {
	return url.Values{"role": {q.Role}, "instance": {q.Instance}, "what": {q.What}, "arguments": {string(q.Arguments)}}
}

func questionOf(r *http.Request) Question {
	query := r.URL.Query()
	return Question{
		Role: query.Get("role"), Instance: query.Get("instance"),
		What: query.Get("what"), Arguments: json.RawMessage(query.Get("arguments")),
	}
}

// serveQuestions has questions answered by f.
func serveQuestions(f func(Question) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		result, err := f(questionOf(r))
		respond(w, result, err, http.StatusUnprocessableEntity)
	}
}

// Ask has an instance answer a question; the answer is decoded into into.
func (c *Client) Ask(ctx context.Context, q Question, into any) error {
	return c.ask(ctx, http.MethodGet, pathAsk, q.values(), into)
}

// Order has an instance change something.
func (c *Client) Order(ctx context.Context, q Question, into any) error {
	return c.ask(ctx, http.MethodPost, pathOrder, q.values(), into)
}
