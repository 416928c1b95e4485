// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gtp

// InitiateRequest asks an SGSN to have the terminal open a secondary context (TS 29.060
// section 7.3.15). Version 0 gave the number to a message of its own, which was
// withdrawn and is not read.
type InitiateRequest struct {
	LinkedNSAPI   uint8
	PCO           Optional[PCO]
	QoS           QoS
	TFT           Optional[[]byte] // see ParseTFT
	CorrelationID uint8
	EvolvedARP    Optional[EvolvedARP]
	Private       Optional[PrivateExtension]
}

// Type returns [TypeInitiateRequest].
func (*InitiateRequest) Type() MessageType { return TypeInitiateRequest }

func (m *InitiateRequest) walk(w *walk) {
	if w.onlyV1() {
		return
	}
	value(w, ElementNSAPI, &m.LinkedNSAPI, nsapi)
	element(w, ElementPCO, optional, &m.PCO, pco)
	qosElement, qos := qosFormat(V1)
	value(w, qosElement, &m.QoS, qos)
	element(w, ElementTFT, conditional, &m.TFT, octets)
	value(w, ElementCorrelationID, &m.CorrelationID, octet)
	element(w, ElementEvolvedARP, optional, &m.EvolvedARP, evolvedARP)
	element(w, ElementPrivateExtension, optional, &m.Private, privateExtension)
}

// InitiateResponse answers an [InitiateRequest] (TS 29.060 section 7.3.16).
type InitiateResponse struct {
	Cause   Cause
	PCO     Optional[PCO]
	Private Optional[PrivateExtension]
}

// Type returns [TypeInitiateResponse].
func (*InitiateResponse) Type() MessageType { return TypeInitiateResponse }

func (m *InitiateResponse) walk(w *walk) {
	if w.onlyV1() {
		return
	}
	value(w, ElementCause, &m.Cause, cause)
	element(w, ElementPCO, conditional, &m.PCO, pco)
	element(w, ElementPrivateExtension, optional, &m.Private, privateExtension)
}
