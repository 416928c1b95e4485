// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package control

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/isthmus-net/isthmus/internal/event"
)

// serveAddresses streams changes of the host's addresses, one line of JSON each, until the reader
// goes away or stopping is done. Whoever may connect may read them: they are the kernel's, too.
func serveAddresses(source Source, stopping context.Context) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(stopping, cancel)()
		w.Header().Set("Content-Type", "application/x-ndjson")
		w.WriteHeader(http.StatusOK)
		lines, flush := json.NewEncoder(w), http.NewResponseController(w).Flush
		if flush() != nil {
			return
		}
		source.Addresses(ctx, func(e event.AddressChange) {
			if lines.Encode(e) != nil || flush() != nil {
				cancel()
			}
		})
	}
}

// Addresses calls tell for the address that each instance has given the host, and for each change
// from then on, until ctx is done; then it returns nil.
func (c *Client) Addresses(ctx context.Context, tell func(event.AddressChange)) error {
	response, err := c.open(ctx, http.MethodGet, pathAddresses, nil)
	if ctx.Err() != nil {
		err = nil
	}
	if err != nil || response == nil {
		return err
	}
	defer response.Body.Close()
	lines := json.NewDecoder(bufio.NewReader(response.Body))
	for {
		var e event.AddressChange
		switch err := lines.Decode(&e); {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("isthmus on %s tells of no more addresses: it has stopped, or was started again", c.path)
		}
		tell(e)
	}
}
