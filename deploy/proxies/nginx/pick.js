// Asks Grapevine where a request goes, with the client's own headers and body.
async function route(r) {
  const a = await r.subrequest('/_pick', {method: 'POST'}); // without a body of its own: the client's is shared
  const h = {};
  for (const name in a.headersOut) h[name.toLowerCase()] = a.headersOut[name];
  const v = r.variables;
  if (a.status == 200) {
    v.gv_id = h['x-pick-id'];
    if (h['x-pick-model']) {
      // The engine knows the model by another name, and nginx does not change bodies.
      return r.return(501, JSON.stringify({error: {message: 'the model has another name at the engine, which this proxy cannot set', type: 'invalid_request_error', code: 501}}));
    }
    v.gv_dest = h['x-gateway-destination-endpoint'];
    v.gv_next = h['x-gateway-destination-endpoint-fallback'] || 'engines';
    v.gv_prefiller = h['x-prefiller-host-port'] || '';
    v.gv_encoders = h['x-encoder-hosts-ports'] || '';
    v.gv_rank = h['x-data-parallel-host-port'] || '';
    v.gv_source = h['x-kv-cache-source-host-port'] || '';
    v.gv_continuation = h['x-grapevine-continuation-hosts-ports'] || '';
    v.gv_continuation_signature = h['x-grapevine-continuation-signature'] || '';
  } else if (a.status >= 400 && a.status != 401 && a.status != 502 && a.status != 504) {
    // Refused: the client gets the answer as it is.
    ['content-type', 'retry-after', 'x-llm-d-request-dropped-reason'].forEach((name) => {
      if (h[name]) r.headersOut[name] = h[name];
    });
    return r.return(a.status, a.responseText);
  } // else no picker answers: the upstream "engines" places
  r.internalRedirect('@engine');
}

export default {route};
