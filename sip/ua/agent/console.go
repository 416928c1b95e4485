// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/internal/event"
	"github.com/isthmus-net/isthmus/sip/ua"
)

// Console runs an agent by lines of text: orders come in, what happens goes out.
type Console struct {
	Agent *Agent
	In    io.Reader
	Out   io.Writer
	// Live rewrites a line of state each second, for terminals.
	Live bool
	// Call is called first, if it is not empty.
	Call string
}

const help = `call ADDRESS      call someone
answer [CALL]     take a call
reject [CALL]     refuse it
hold [CALL]       hold a call; resume [CALL] ends that
digits KEYS       press keys: 0-9, *, #, A-D
move INTERFACE    take all calls to that interface
hangup [CALL]     end a call
status            show address, calls and media
quit              end all calls and leave
`

// Run serves until quit, the end of the input, or the end of ctx.
func (c *Console) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- c.Agent.Run(ctx) }()
	lines := make(chan string)
	go read(ctx, c.In, lines)
	if c.Call != "" {
		c.order(ctx, "call "+c.Call)
	}
	second := time.NewTicker(time.Second)
	defer second.Stop()
	events := c.Agent.Events()
	for {
		select {
		case v, ok := <-events:
			if !ok {
				return <-ended
			}
			c.print(eventText(v))
		case line, ok := <-lines:
			if !ok || strings.TrimSpace(line) == "quit" {
				cancel()
				lines = nil
				continue
			}
			c.order(ctx, line)
		case <-second.C:
			if s, err := c.Agent.State(ctx); c.Live && err == nil {
				fmt.Fprintf(c.Out, "\r\x1b[K%s", stateText(s))
			}
		}
	}
}

// read passes lines on until there are no more.
func read(ctx context.Context, in io.Reader, lines chan<- string) {
	defer close(lines)
	scanner := bufio.NewScanner(in)
	for scanner.Scan() {
		select {
		case lines <- scanner.Text():
		case <-ctx.Done():
			return
		}
	}
}

// print writes a line of its own, whatever the live line is.
func (c *Console) print(text string) {
	if text == "" {
		return
	}
	if c.Live {
		fmt.Fprint(c.Out, "\r\x1b[K")
	}
	fmt.Fprintln(c.Out, text)
}

// order does what a line says.
func (c *Console) order(ctx context.Context, line string) {
	words := strings.Fields(line)
	if len(words) == 0 {
		return
	}
	argument := ""
	if len(words) > 1 {
		argument = words[1]
	}
	if err := c.obey(ctx, words[0], argument); err != nil {
		c.print(err.Error())
	}
}

func (c *Console) obey(ctx context.Context, verb, argument string) error {
	a := c.Agent
	switch verb {
	case "call":
		_, err := a.Call(ctx, argument)
		return err
	case "move":
		return a.Move(ctx, argument)
	case "status":
		s, err := a.State(ctx)
		if err == nil {
			c.print(stateText(s))
		}
		return err
	case "help", "?":
		c.print(strings.TrimSuffix(help, "\n"))
		return nil
	case "digits":
		id, err := c.which(ctx, "")
		if err != nil {
			return err
		}
		return a.Press(ctx, id, argument)
	}
	orders := map[string]func(ua.CallID) error{
		"answer": func(id ua.CallID) error { return a.Answer(ctx, id) },
		"reject": func(id ua.CallID) error { return a.Reject(ctx, id, 603) },
		"hangup": func(id ua.CallID) error { return a.HangUp(ctx, id) },
		"hold":   func(id ua.CallID) error { return a.Hold(ctx, id, true) },
		"resume": func(id ua.CallID) error { return a.Hold(ctx, id, false) },
	}
	order, ok := orders[verb]
	if !ok {
		return fmt.Errorf("%q is no order; help lists them", verb)
	}
	id, err := c.which(ctx, argument)
	if err != nil {
		return err
	}
	return order(id)
}

// which is the call that an order means: the one that it names, or the newest.
func (c *Console) which(ctx context.Context, argument string) (ua.CallID, error) {
	if argument != "" {
		n, err := strconv.Atoi(argument)
		if err != nil {
			return 0, fmt.Errorf("%q is no number of a call; status lists them", argument)
		}
		return ua.CallID(n), nil
	}
	s, err := c.Agent.State(ctx)
	if err != nil {
		return 0, err
	}
	if len(s.Calls) == 0 {
		return 0, ua.ErrNoCall
	}
	return s.Calls[len(s.Calls)-1].ID, nil
}

// eventText says in a line what has happened; "" is nothing to tell.
func eventText(v Event) string {
	at := v.Time.Format("15:04:05.000 ")
	if v.Address != nil {
		return at + addressText(v.Address)
	}
	if v.Media != nil {
		return fmt.Sprintf("%scall %d: %s", at, v.Call, v.Media.Kind)
	}
	text := strings.ReplaceAll(v.Kind.String(), "_", " ")
	if v.Call != 0 {
		remote := v.Remote
		text = fmt.Sprintf("call %d: %s, %s", v.Call, text, remote.String())
	}
	if v.Status != 0 {
		text += fmt.Sprintf(", %d %s", v.Status, v.Reason)
	}
	if v.Took > 0 {
		text += fmt.Sprintf(", %v", v.Took.Round(10*time.Microsecond))
	}
	return at + text
}

// addressText says what has become of an address.
func addressText(e *event.AddressChange) string {
	cause := strings.ReplaceAll(string(e.Cause), "_", " ")
	if !e.New.IsValid() {
		return fmt.Sprintf("address %s of %s lost: %s", e.Old, e.Interface, cause)
	}
	text := fmt.Sprintf("address %s of %s", e.New, e.Interface)
	if e.Standby {
		text += " on standby"
	}
	if e.Old.IsValid() && e.Old != e.New {
		text += fmt.Sprintf(", before %s", e.Old)
	}
	return text + ": " + cause
}

// stateText is the live line.
func stateText(s State) string {
	var text strings.Builder
	if s.Path.IsValid() {
		fmt.Fprintf(&text, "%s (%s), %d on standby", s.Path, s.Link, len(s.Standby))
	} else {
		text.WriteString("no address")
	}
	for _, c := range s.Calls {
		fmt.Fprintf(&text, " | call %d %s, %d sent, %d heard, %d lost", c.ID, c.State, c.Media.Sent, c.Media.Received, c.Media.Lost)
		if c.Held {
			text.WriteString(", held")
		}
		if !c.Handoff.Marked.IsZero() {
			fmt.Fprintf(&text, ", gap %v", c.Handoff.Gap.Round(100*time.Microsecond))
		}
	}
	return text.String()
}
