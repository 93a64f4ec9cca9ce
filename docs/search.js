// The theme's search turns every word into a prefix and ranks titles first, so that "to" finds each
// title with "token", and "diff" each with "difference". It also reads a leading minus, as in
// "--force" or "-32001", as "without". This rewrites a query: no operators, no common words (unless
// there are no others), and for each word an exact match before the beginnings of words. The
// message { type: 2, data: QUERY } is the theme's own (mkdocs-material 9).
(() => {
  const QUERY = 2;
  const EXACT_BOOST = 6;
  const COMMON = new Set(
    ("a about after all also always am an and any are as at be been but by can could did do does for from get had has " +
      "have he her him his how i if in into is it its just let me more most my not of off on one only or other our " +
      "own she should so some than that the their them then there these they this to too upwell us was we were what " +
      "when where which while who why will with would you your " +
      "down happens make need new run say take up use want").split(" "),
  );
  const post = Worker.prototype.postMessage;

  function rewritten(query) {
    const words = query.split(/[\s\-,:;!?=()[\]"'`/+*~^]+|\.(?!\d|\w)/).filter(Boolean);
    const rare = words.filter((word) => !COMMON.has(word.toLowerCase()));
    return (rare.length ? rare : words).map((word) => `${word}^${EXACT_BOOST} ${stem(word)}`).join(" ");
  }

  // The theme adds the star that makes this a prefix.
  function stem(word) {
    const root = word.replace(/(ing|ed|es|s)$/i, "");
    return root.length >= 4 ? root : word;
  }

  Worker.prototype.postMessage = function (message, ...rest) {
    if (message?.type === QUERY && typeof message.data === "string") {
      message = { ...message, data: rewritten(message.data) };
    }
    return post.call(this, message, ...rest);
  };
})();
