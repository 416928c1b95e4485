// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package control

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// TestBodiesAreRefused: what a question brings beside its address is neither kept nor waited for.
func TestBodiesAreRefused(t *testing.T) {
	s := &source{}
	path := start(t, s).path
	for name, request := range map[string]string{
		"question, announced":    "GET " + pathAsk + "?role=client&what=x",
		"peers, announced":       "GET " + pathPeers + "?instance=live",
		"status, announced":      "GET " + pathStatus,
		"order, announced":       "POST " + pathOrder + "?role=client&what=x",
		"drain, announced":       "POST " + pathDrain,
		"trace, announced":       "GET " + pathTrace,
		"no such thing, chunked": "POST /v1/nothing",
		"question, chunked":      "GET " + pathAsk + "?role=client&what=x",
	} {
		t.Run(name, func(t *testing.T) {
			body := "Content-Length: 1000000000"
			if strings.HasSuffix(name, "chunked") {
				body = "Transfer-Encoding: chunked"
			}
			conn, err := net.Dial("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := conn.SetDeadline(time.Now().Add(testutil.Patience)); err != nil {
				t.Fatal(err)
			}
			// A part of a form, of which no more comes.
			fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: isthmus\r\nContent-Type: multipart/form-data; boundary=b\r\n%s\r\n\r\n--b\r\n", request, body)
			reader := bufio.NewReader(conn)
			response, err := http.ReadResponse(reader, nil)
			if err != nil {
				t.Fatal(err)
			}
			if response.StatusCode != http.StatusRequestEntityTooLarge {
				t.Errorf("answered %s", response.Status)
			}
			_, _ = io.Copy(io.Discard, response.Body)
			if _, err := reader.ReadByte(); err != io.EOF {
				t.Errorf("the connection goes on: %v", err)
			}
		})
	}
	if s.asked.What != "" || s.drained {
		t.Errorf("something was done: %+v, drained %t", s.asked, s.drained)
	}
}
