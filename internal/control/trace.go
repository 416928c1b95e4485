// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package control

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/isthmus-net/isthmus/internal/trace"
)

// TraceRequest is what a trace is asked for.
type TraceRequest struct {
	// Instance limits the trace to one; empty is all that can be traced.
	Instance string
	// Filter is in the language of [trace.ParseFilter].
	Filter string
	trace.Sampling
}

// traceLine is one line of the stream: a sample, or how many were lost because
// the reader was slow.
type traceLine struct {
	Sample *trace.Sample `json:"sample,omitempty"`
	Lost   uint64        `json:"lost,omitempty"`
}

// traceQueue is how many samples wait for a slow reader.
const traceQueue = 1024

// query and parseTrace are each other's opposite.
func (t *TraceRequest) query() url.Values {
	return url.Values{
		"instance": {t.Instance}, "filter": {t.Filter},
		"every": {strconv.Itoa(t.Every)}, "rate": {strconv.Itoa(t.PerSecond)},
	}
}

func parseTrace(r *http.Request) (t TraceRequest, filter trace.Filter, err error) {
	query := r.URL.Query()
	t = TraceRequest{Instance: query.Get("instance"), Filter: query.Get("filter")}
	if filter, err = trace.ParseFilter(t.Filter); err != nil {
		return t, filter, err
	}
	t.Sampling = trace.Sampling{Every: 1, PerSecond: trace.DefaultPerSecond}
	for name, into := range map[string]*int{"every": &t.Every, "rate": &t.PerSecond} {
		if text := query.Get(name); text != "" {
			if *into, err = strconv.Atoi(text); err != nil {
				return t, filter, fmt.Errorf("%s=%s is no number", name, text)
			}
		}
	}
	return t, filter, t.Sampling.Check()
}

// serveTrace streams samples, one line of JSON each, until the reader goes away
// or stopping is done. What a slow reader misses is counted.
func serveTrace(source Source, stopping context.Context) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		asked, filter, err := parseTrace(r)
		if err != nil {
			refuse(w, http.StatusBadRequest, err.Error())
			return
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(stopping, cancel)()
		samples := make(chan trace.Sample, traceQueue)
		var lost atomic.Uint64
		ended := make(chan error, 1)
		go func() {
			ended <- source.Trace(ctx, asked.Instance, asked.Sampling, func(s *trace.Sample) {
				if !filter.Match(s) {
					return
				}
				copied := *s
				copied.Data = slices.Clone(s.Data)
				select {
				case samples <- copied:
				default:
					lost.Add(1)
				}
			})
		}()
		streamTrace(w, ctx, samples, &lost, ended)
	}
}

// refusalTime is how long a trace has to be refused, before the answer begins.
const refusalTime = time.Second

// streamTrace writes until the trace ends.
func streamTrace(w http.ResponseWriter, ctx context.Context, samples <-chan trace.Sample, lost *atomic.Uint64, ended <-chan error) {
	// Whoever does not flush keeps lines back, and no more.
	flush := func() { _ = http.NewResponseController(w).Flush() }
	refusal := time.After(refusalTime)
	lines := json.NewEncoder(w)
	begun := false
	begin := func() {
		if !begun {
			w.Header().Set("Content-Type", "application/x-ndjson")
			w.WriteHeader(http.StatusOK)
			begun = true
		}
	}
	for {
		select {
		case err := <-ended:
			if err == nil || begun {
				begin()
			} else {
				fail(w, err, http.StatusConflict)
			}
			return
		case <-refusal:
			if len(ended) == 0 {
				begin()
				flush()
			}
		case s := <-samples:
			begin()
			if err := lines.Encode(traceLine{Sample: &s, Lost: lost.Swap(0)}); err != nil {
				return
			}
			if len(samples) == 0 {
				flush()
			}
		}
	}
}

// Trace calls emit for each sample that a running isthmus shows, until ctx is
// done, and lose with the number of samples that could not be had.
func (c *Client) Trace(ctx context.Context, t TraceRequest, emit func(*trace.Sample) error, lose func(uint64)) error {
	response, err := c.open(ctx, http.MethodGet, pathTrace, t.query())
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer response.Body.Close()
	lines := json.NewDecoder(bufio.NewReader(response.Body))
	for {
		var line traceLine
		switch err := lines.Decode(&line); {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("isthmus on %s ended the trace: it has stopped, or was started again", c.path)
		}
		if line.Lost > 0 {
			lose(line.Lost)
		}
		if line.Sample != nil {
			if err := emit(line.Sample); err != nil {
				return err
			}
		}
	}
}
