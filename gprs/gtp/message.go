// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gtp

// Message is a message whose elements have fields: each type of this package that a
// [Codec] reads and writes.
type Message interface {
	// Type returns the type that its header has.
	Type() MessageType
	// walk goes over the fields in the order of their elements.
	walk(w *walk)
}

// Codec reads and writes messages. It is scratch memory alone, so that nothing is
// allocated for a message; the zero value is ready, for one thread.
type Codec struct{ w walk }

// Parse reads the elements behind the header into m, whose fields are all overwritten.
// Slices in it alias the datagram. An error is a [*Refusal]; m is then of no use.
func (c *Codec) Parse(h *Header, m Message) (Notes, error) {
	if h.Type != m.Type() {
		return Notes{}, refuse(FaultMessageType, 0)
	}
	e, err := ParseElements(h)
	if err != nil {
		return Notes{}, err
	}
	c.w = walk{version: h.Version, b: e.octets}
	m.walk(&c.w)
	c.w.finish()
	notes, err := c.w.notes, c.w.err
	c.w = walk{}
	return notes, err
}

// Append appends header and elements of m; type and length of the header are set by it.
// An error is a [*Refusal] and means that m has no place for, or lacks, an element; b
// is then returned as it was.
func (c *Codec) Append(b []byte, h Header, m Message) ([]byte, error) {
	h.Type = m.Type()
	c.w = walk{version: h.Version, writing: true, start: len(b)}
	if c.w.b, c.w.err = h.AppendTo(b, 0); c.w.err == nil {
		m.walk(&c.w)
	}
	b, err := c.w.written()
	c.w = walk{}
	return b, err
}

// NewMessage returns an empty message of the type. ok is false if the type has none of
// its own; [ParseElements] reads it.
func NewMessage(t MessageType) (m Message, ok bool) {
	switch t {
	case TypeEchoRequest:
		m = &EchoRequest{}
	case TypeEchoResponse:
		m = &EchoResponse{}
	case TypeVersionNotSupported:
		m = &VersionNotSupported{}
	case TypeCreateRequest:
		m = &CreateRequest{}
	case TypeCreateResponse:
		m = &CreateResponse{}
	case TypeUpdateRequest:
		m = &UpdateRequest{}
	case TypeUpdateResponse:
		m = &UpdateResponse{}
	case TypeDeleteRequest:
		m = &DeleteRequest{}
	case TypeDeleteResponse:
		m = &DeleteResponse{}
	case TypeInitiateRequest:
		m = &InitiateRequest{}
	case TypeInitiateResponse:
		m = &InitiateResponse{}
	case TypeErrorIndication:
		m = &ErrorIndication{}
	case TypePDUNotificationRequest:
		m = &PDUNotificationRequest{}
	case TypePDUNotificationResponse:
		m = &PDUNotificationResponse{}
	case TypePDUNotificationRejectRequest:
		m = &PDUNotificationRejectRequest{}
	case TypePDUNotificationRejectResponse:
		m = &PDUNotificationRejectResponse{}
	case TypeSupportedExtensions:
		m = &SupportedExtensions{}
	case TypeInfoChangeRequest:
		m = &InfoChangeRequest{}
	case TypeInfoChangeResponse:
		m = &InfoChangeResponse{}
	case TypeEndMarker:
		m = &EndMarker{}
	}
	return m, m != nil
}
