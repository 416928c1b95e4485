// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/sctp"
	"github.com/isthmus-net/isthmus/sctp/media/transfer"
)

// Config says how a client reaches its server.
type Config struct {
	Network       string // sctp, sctp+udp, or of one family
	Local         string // addresses and port of ours, as "host/host:port"; ":0" is all
	UDPPort       int    // of ours; 0 is any
	HideAddresses bool
	Parameters    sctp.Parameters
	Primary       netip.Addr // address of ours that the server is asked to send to; invalid: it decides
}

// Client is an association with a server.
type Client struct {
	endpoint *sctp.Endpoint
	conn     *sctp.Conn
	number   uint16 // of the last transfer
	buffer   []byte
}

// Dial sets up an association with a server. The sockets live in the network namespace of the calling thread.
func Dial(ctx context.Context, c Config, server string) (*Client, error) {
	config := sctp.Config{Parameters: &c.Parameters, UDPPort: c.UDPPort, HideAddresses: c.HideAddresses}
	if c.UDPPort == 0 {
		config.UDPPort = sctp.AnyPort
	}
	e, err := config.Open(ctx, c.Network, c.Local)
	if err != nil {
		return nil, err
	}
	conn, err := e.Dial(ctx, server)
	if err != nil {
		_ = e.Close()
		return nil, err
	}
	client := &Client{endpoint: e, conn: conn, buffer: make([]byte, transfer.DataHeader+transfer.MaxData+1)}
	_ = e.Close() // once the association has ended
	if c.Primary.IsValid() {
		if err := conn.Prefer(c.Primary); err != nil {
			client.Abort()
			return nil, fmt.Errorf("the server cannot be asked to send to %s: %w", c.Primary, err)
		}
	}
	return client, nil
}

// Conn is the association.
func (c *Client) Conn() *sctp.Conn { return c.conn }

// Close ends the association in order.
func (c *Client) Close(ctx context.Context) error { return c.conn.Shutdown(ctx) }

// Abort ends it at once.
func (c *Client) Abort() { c.conn.Abort("not wanted any more") }

// errStream is of messages that came where they do not belong.
var errStream = errors.New("the server has sent a message by a stream that is not its")

// next reads a message of the server.
func (c *Client) next() (transfer.Message, sctp.MessageInfo, error) {
	n, info, err := c.conn.ReadMessage(c.buffer)
	if err != nil {
		return nil, info, err
	}
	if !info.First || !info.Last || info.PPID != transfer.PPID {
		return nil, info, transfer.ErrMessage
	}
	m, err := transfer.Parse(c.buffer[:n])
	if _, data := m.(*transfer.Data); err == nil && data == (info.Stream == transfer.ControlStream) {
		err = errStream
	}
	return m, info, err
}

func (c *Client) write(m transfer.Message) error {
	return c.conn.WriteMessage(m.Append(nil), sctp.Message{Stream: transfer.ControlStream, PPID: transfer.PPID})
}

// List lists all sources of the server.
func (c *Client) List(ctx context.Context) (all []transfer.Entry, err error) {
	defer context.AfterFunc(ctx, c.Abort)()
	after := ""
	for {
		c.number++
		if err := c.write(&transfer.List{Transfer: c.number, After: after}); err != nil {
			return nil, err
		}
		m, _, err := c.next()
		if err != nil {
			return nil, err
		}
		list, ok := m.(*transfer.Entries)
		if !ok || list.Transfer != c.number {
			return nil, transfer.ErrMessage
		}
		all = append(all, list.List...)
		if !list.More {
			return all, nil
		}
		if next := list.List[len(list.List)-1].Name; next <= after {
			return nil, transfer.ErrMessage // for ever
		}
		after = list.List[len(list.List)-1].Name
	}
}

// cancelWait is how long the server has to end a transfer that was cancelled.
const cancelWait = 2 * time.Second
