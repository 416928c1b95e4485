// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/isthmus-net/isthmus/internal/config"
)

// changeKey marks in a context whether the peer of its connection may change
// anything.
type changeKey struct{}

// NewServer returns the server that answers on the control socket.
func NewServer(source Source) *http.Server {
	// Traces and changes of addresses have no end of their own: Shutdown would wait for them.
	stopping, stop := context.WithCancel(context.Background())
	server := &http.Server{
		Handler:           handler(source, stopping),
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ConnState:         newCrowd().follow,
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, changeKey{}, mayChange(userOf(conn)))
		},
	}
	server.RegisterOnShutdown(stop)
	return server
}

func handler(source Source, stopping context.Context) http.Handler {
	mux := http.NewServeMux()
	reading(mux, source, stopping)
	trusted(mux, source, stopping)
	return bodiless(mux)
}

// bodiless refuses questions with a body, for all that is asked stands in their addresses: who
// may only read shall fill neither memory nor disk, nor hold a place by a body that never ends.
func bodiless(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength == 0 {
			next.ServeHTTP(w, r)
			return
		}
		// The server would wait for some of it otherwise, to take a further question.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now())
		w.Header().Set("Connection", "close")
		refuse(w, http.StatusRequestEntityTooLarge, "the control socket takes no body: write what is asked into the address, behind a question mark")
	})
}

// reading are the handlers that change nothing.
func reading(mux *http.ServeMux, source Source, stopping context.Context) {
	mux.HandleFunc("GET "+pathStatus, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, source.Status())
	})
	mux.HandleFunc("GET "+pathAddresses, serveAddresses(source, stopping))
	mux.HandleFunc("GET "+pathAsk, serveQuestions(source.Ask))
	mux.HandleFunc("GET "+pathPeers, func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		limit := DefaultPeers
		if text := query.Get("limit"); text != "" {
			n, err := strconv.Atoi(text)
			if err != nil || n < 0 || n > MaxPeers {
				refuse(w, http.StatusBadRequest, fmt.Sprintf("limit must be a number from 0 to %d", MaxPeers))
				return
			}
			limit = n
		}
		peers, err := source.Peers(query.Get("instance"), limit)
		respond(w, peers, err, http.StatusInternalServerError)
	})
}

// trusted are the handlers that do more than look at the state.
func trusted(mux *http.ServeMux, source Source, stopping context.Context) {
	guard := func(what string, handle http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if allowed, _ := r.Context().Value(changeKey{}).(bool); !allowed {
				refuse(w, http.StatusForbidden, "only root and the user who runs isthmus may "+what+": use sudo")
				return
			}
			handle(w, r)
		}
	}
	mux.HandleFunc("GET "+pathTrace, guard("see the packets of others", serveTrace(source, stopping)))
	draining(mux, source, guard)
	mux.HandleFunc("POST "+pathOrder, guard("change anything", serveQuestions(source.Order)))
	mux.HandleFunc("POST "+pathReload, guard("change anything", func(w http.ResponseWriter, _ *http.Request) {
		reloaded, err := source.Reload()
		var faults config.Errors
		switch {
		case errors.As(err, &faults):
			send(w, http.StatusUnprocessableEntity, problem{err.Error(), toFaults(faults)})
		case err != nil:
			refuse(w, http.StatusUnprocessableEntity, err.Error())
		default:
			answer(w, reloaded)
		}
	}))
}

func answer(w http.ResponseWriter, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// A reader that went away needs no answer.
	_, _ = w.Write(append(body, '\n'))
}

// problem is the body of an answer that is an error.
type problem struct {
	Error  string  `json:"error"`
	Faults []fault `json:"faults,omitempty"`
}

// fault is a [config.Error] with the names of JSON.
type fault struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Key     string `json:"key,omitempty"`
	Problem string `json:"problem"`
	Remedy  string `json:"remedy"`
	Source  string `json:"source"`
	Width   int    `json:"width"`
}

func toFaults(errs config.Errors) []fault {
	faults := make([]fault, len(errs))
	for i, e := range errs {
		faults[i] = fault(*e)
	}
	return faults
}

func fromFaults(faults []fault) config.Errors {
	errs := make(config.Errors, len(faults))
	for i, f := range faults {
		e := config.Error(f)
		errs[i] = &e
	}
	return errs
}

// respond answers with a value, unless there is an error, which fails with the status.
func respond(w http.ResponseWriter, value any, err error, status int) {
	if err != nil {
		fail(w, err, status)
		return
	}
	answer(w, value)
}

// fail refuses for an error: with the status, unless there is no such instance.
func fail(w http.ResponseWriter, err error, status int) {
	if errors.Is(err, ErrNoInstance) {
		status = http.StatusNotFound
	}
	refuse(w, status, err.Error())
}

func refuse(w http.ResponseWriter, status int, text string) {
	send(w, status, problem{Error: text})
}

func send(w http.ResponseWriter, status int, what problem) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(what)
}
